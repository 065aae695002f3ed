-- Returns when the ready job that has waited longest became available; null if none is ready.
CREATE OR REPLACE FUNCTION rowlock.ready_since(_queue text) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    RETURN least(
        (SELECT j.created_at
         FROM (SELECT r.job_id FROM rowlock.ready r WHERE r.queue = _queue AND r.available_at IS NULL
               ORDER BY r.available_at NULLS FIRST, r.seq LIMIT 1) f
         CROSS JOIN LATERAL (SELECT x.created_at FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j),
        (SELECT r.available_at FROM rowlock.ready r WHERE r.queue = _queue AND r.available_at IS NOT NULL
         ORDER BY r.available_at NULLS FIRST LIMIT 1));
END $$;

-- Returns jobs that changed at or after a moment, the oldest change first, or one row without a job if there is none.
-- A job is in one table, which knows when the job arrived there, so each job is found once, in its present state. Jobs and
-- finished arrive in order of time: their BRIN indexes find the new rows, provided that no cached plan is used.
CREATE OR REPLACE FUNCTION rowlock.changes(_since timestamptz, _limit integer, _now timestamptz)
RETURNS TABLE (looked_at timestamptz, id text, type text, queue text, status text, attempts integer, max_attempts integer,
               lease integer, progress integer, message text, error text, company_id text, changed_at timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET jit = off SET max_parallel_workers_per_gather = 0
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp()); -- read first: the query misses what commits later
BEGIN
    RETURN QUERY
    WITH changed AS (
        (SELECT f.job_id, f.finished_at AS at,
                CASE f.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS status,
                f.attempt, f.lease, NULL::smallint AS progress, NULL::text AS message, f.error
         FROM rowlock.finished f WHERE f.finished_at >= _since
         ORDER BY f.finished_at, f.job_id LIMIT _limit)
        UNION ALL
        (SELECT r.job_id, greatest(r.locked_at, r.updated_at), 'processing', r.attempt, r.lease, r.progress, r.message, NULL
         FROM rowlock.running r WHERE greatest(r.locked_at, r.updated_at) >= _since
         ORDER BY 2, 1 LIMIT _limit)
        UNION ALL
        (SELECT y.job_id, y.updated_at, 'queued', y.attempt, y.lease, NULL, NULL, y.error
         FROM rowlock.ready y WHERE y.updated_at >= _since
         ORDER BY y.updated_at, y.job_id LIMIT _limit)
        UNION ALL
        (SELECT d.job_id, d.updated_at, 'queued', d.attempt, d.lease, NULL, NULL, d.error
         FROM rowlock.delayed d WHERE d.updated_at >= _since
         ORDER BY d.updated_at, d.job_id LIMIT _limit)
        UNION ALL
        -- Enqueued, and nothing since.
        (SELECT j.id, j.created_at, 'queued', 0, 0, NULL, NULL, NULL
         FROM (SELECT x.id, x.created_at, x.queue, x.priority, x.seq, x.limit_key FROM rowlock.jobs x
               WHERE x.created_at >= _since ORDER BY x.created_at, x.id OFFSET 0) j
         CROSS JOIN LATERAL (
             SELECT 1 FROM rowlock.ready y
             WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.updated_at IS NULL
               AND y.limit_key IS NULL AND j.limit_key IS NULL
             UNION ALL
             SELECT 1 FROM rowlock.ready y
             WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.updated_at IS NULL
               AND y.limit_key = j.limit_key
             UNION ALL
             SELECT 1 FROM rowlock.delayed d WHERE d.job_id = j.id AND d.updated_at IS NULL) waiting
         ORDER BY j.created_at, j.id LIMIT _limit)
    )
    SELECT clock, c.job_id::text, j.type, j.queue, c.status, c.attempt::integer, j.max_attempts::integer, c.lease::integer,
           c.progress::integer, c.message, c.error, j.company_id, c.at
    FROM (VALUES (0)) once
    LEFT JOIN (SELECT * FROM changed ORDER BY at, job_id LIMIT _limit) c ON true
    LEFT JOIN LATERAL (
        SELECT x.type, x.queue, x.max_attempts, x.company_id FROM rowlock.jobs x WHERE x.id = c.job_id OFFSET 0) j ON true
    ORDER BY c.at, c.job_id;
END $$;

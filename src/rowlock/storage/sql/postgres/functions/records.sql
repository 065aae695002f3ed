-- Returns jobs by their ids. A plan made while the tables were empty would scan all of them for ever, so only look-ups by
-- key are allowed.
CREATE OR REPLACE FUNCTION rowlock.records(_ids uuid[]) RETURNS SETOF rowlock.all_jobs
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN QUERY
    SELECT a.* FROM unnest(_ids) AS u (id) CROSS JOIN LATERAL (SELECT * FROM rowlock.all_jobs x WHERE x.id = u.id OFFSET 0) a;
END $$;

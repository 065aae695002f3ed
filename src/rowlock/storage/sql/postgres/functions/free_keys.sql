-- Frees the unique keys of jobs that hold them while they are active, except of jobs that took over from a newer job than
-- the one given for each; returns those. Fails if a key stays locked: the caller retries and keeps no connection meanwhile.
CREATE OR REPLACE FUNCTION rowlock.free_keys(_ids uuid[], _newest uuid[]) RETURNS text[]
LANGUAGE plpgsql
SET lock_timeout = '300ms'
AS $$
BEGIN
    -- An enqueue that was answered with such a job holds the lock of its key until it commits: wait for it first.
    PERFORM FROM rowlock.unique_keys k
    WHERE k.job_id = ANY (_ids)
      AND k.key = ANY (ARRAY(SELECT j.unique_key FROM rowlock.jobs j WHERE j.id = ANY (_ids) AND j.releases_key))
    ORDER BY k.key FOR UPDATE;
    DELETE FROM rowlock.unique_keys k USING rowlock.jobs j, unnest(_ids, _newest) AS u (id, newest)
    WHERE j.id = u.id AND j.releases_key AND coalesce(j.newest, j.id) <= u.newest
      AND k.key = j.unique_key AND k.job_id = j.id;
    RETURN ARRAY(SELECT j.id::text FROM unnest(_ids, _newest) AS u (id, newest)
                 JOIN rowlock.jobs j ON j.id = u.id WHERE j.newest > u.newest);
END $$;

-- Queues failed or cancelled jobs again for an operator. Returns each id and whether its unique key was free.
CREATE OR REPLACE FUNCTION rowlock.retry(_ids uuid[], _now timestamptz) RETURNS TABLE (id text, retried boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
    held  uuid[];
BEGIN
    SELECT array_agg(f.job_id) INTO held FROM (
        SELECT f.job_id FROM rowlock.finished f WHERE f.job_id = ANY (_ids) AND f.status <> 1
        ORDER BY f.job_id FOR UPDATE SKIP LOCKED) f;

    RETURN QUERY
    WITH wanted AS (
        SELECT j.* FROM rowlock.jobs j WHERE j.id = ANY (held)
    ), keys AS (
        INSERT INTO rowlock.unique_keys AS k (key, job_id, expires_at)
        SELECT DISTINCT ON (w.unique_key) w.unique_key, w.id, 'infinity'::timestamptz FROM wanted w WHERE w.releases_key
        ORDER BY w.unique_key, w.seq DESC
        ON CONFLICT (key) DO UPDATE SET job_id = excluded.job_id, expires_at = excluded.expires_at
        WHERE k.expires_at <= clock OR k.job_id = excluded.job_id
        RETURNING k.job_id
    ), again AS (
        SELECT w.* FROM wanted w
        WHERE CASE WHEN w.releases_key THEN w.id IN (SELECT job_id FROM keys)
                   ELSE NOT EXISTS (SELECT FROM rowlock.unique_keys k
                                    WHERE k.key = w.unique_key AND k.job_id <> w.id AND k.expires_at > clock) END
    ), gone AS (
        DELETE FROM rowlock.finished f USING again a WHERE f.job_id = a.id AND f.status <> 1
        RETURNING a.seq, a.id, f.lease, a.priority, a.queue, a.type, a.limit_key, f.error, f.status
    ), tallied AS (
        INSERT INTO rowlock.counter_deltas (at, queue, type, alive, failed, cancelled)
        SELECT clock, queue, type, count(*), -count(*) FILTER (WHERE status = 2), -count(*) FILTER (WHERE status = 3)
        FROM gone GROUP BY queue, type
    ), resolved AS (
        UPDATE rowlock.job_failures x SET resolved_at = clock
        WHERE x.job_id = ANY (ARRAY(SELECT id FROM gone)) AND x.resolved_at IS NULL
    ), soon AS (
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
        -- The lease number continues at the next multiple of 65,536: the remainder counts the claims since.
        SELECT seq, id, (lease + 65535) / 65536 * 65536, priority, 0, 0, queue, limit_key, clock, clock, error FROM gone
        RETURNING job_id, queue
    ), notified AS (
        SELECT pg_notify('rowlock', 'queue:' || q.queue) FROM (SELECT DISTINCT queue FROM soon) q
    )
    SELECT w.id::text, s.job_id IS NOT NULL
    FROM wanted w LEFT JOIN soon s ON s.job_id = w.id, (SELECT count(*) FROM notified) done;
END $$;

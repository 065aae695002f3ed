-- Takes back jobs whose lease has expired: the claim and the owner's last heartbeat are older than the visibility timeout.
-- The error names the worker in a line of its own: jobs are grouped by the first line.
CREATE OR REPLACE FUNCTION rowlock.rescue(_limit integer, _queues text[], _delays double precision[], _now timestamptz)
RETURNS TABLE (id text, type text, queue text, owner text, attempt smallint, max_attempts smallint, outcome integer,
               company_id text, payload text, error text, started_at timestamptz)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM rowlock.running
        WHERE ctid = ANY (ARRAY(
            SELECT r.ctid FROM rowlock.running r LEFT JOIN rowlock.workers w ON w.id = r.owner
            WHERE greatest(r.locked_at, w.seen_at) + r.visibility_ms * interval '1 millisecond' < clock
            LIMIT _limit FOR UPDATE OF r SKIP LOCKED))
        RETURNING *
    ), sorted AS (
        SELECT g.*, j.seq, j.priority, j.queue, j.type, j.max_attempts, j.unique_key, j.company_id, j.payload,
               CASE WHEN g.cancel_requested THEN 3 WHEN g.attempt >= j.max_attempts THEN 2 ELSE 4 END AS outcome,
               coalesce(_delays[array_position(_queues, j.queue)], 0) AS delay,
               'lease expired: its worker sent no heartbeat for ' || g.visibility_ms || E' ms\nthe worker: ' || g.owner AS error
        FROM gone g CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = g.job_id OFFSET 0) j
    ), over AS (
        INSERT INTO rowlock.finished (job_id, available_at, started_at, finished_at, lease, attempt, deaths, status, error)
        SELECT job_id, available_at, locked_at, clock, lease, attempt, deaths, outcome, error FROM sorted WHERE outcome <= 3
    ), freed AS (
        DELETE FROM rowlock.unique_keys k USING sorted s
        WHERE s.releases_key AND s.outcome <= 3 AND k.key = s.unique_key AND k.job_id = s.job_id
    ), soon AS (
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
        SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, clock, clock, error FROM sorted
        WHERE outcome > 3 AND delay <= 0
    ), later AS (
        INSERT INTO rowlock.delayed (job_id, seq, available_at, lease, priority, attempt, deaths, queue, limit_key, updated_at, error)
        SELECT job_id, seq, clock + delay * interval '1 second', lease, priority, attempt, deaths, queue, limit_key, clock, error
        FROM sorted WHERE outcome > 3 AND delay > 0
    ), tallied AS (
        INSERT INTO rowlock.counter_deltas (at, queue, type, alive, delayed, failed, cancelled, failures, rescues)
        SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
               count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
               count(*) FILTER (WHERE outcome <> 3), count(*)
        FROM sorted GROUP BY queue, type
    )
    SELECT s.job_id::text, s.type, s.queue, s.owner::text, s.attempt, s.max_attempts, s.outcome,
           s.company_id, s.payload::text, s.error, s.locked_at FROM sorted s;
END $$;

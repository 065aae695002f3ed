-- Ends attempts, each only if its id, lease and owner still match. Returns the ids for which they did not.
-- Outcomes: 1 succeeded, 2 failed, 3 cancelled; 4 retry, 5 release, 6 crash, 7 suspect wait again; 8 fatal is a failure.
-- A column of equal leases is sent as an array of one. Empty arrays stand for columns of defaults: every outcome a
-- success, no delay, no result, no error. Types and queues are for the counters alone. _failures: an array of objects with
-- id, job, lease, payload (redacted, as text) and stack, one for each attempt that failed. An attempt without seconds never
-- started: it does not count against the rate of its limit key.
CREATE OR REPLACE FUNCTION rowlock.settle(
    _owner uuid, _ids uuid[], _leases integer[], _outcomes integer[], _seconds double precision[],
    _delays double precision[], _results text[], _errors text[], _types text[], _queues text[], _failures json, _now timestamptz
) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    clock       timestamptz := coalesce(_now, clock_timestamp());
    settled     uuid[];
    freeing     uuid[];                     -- jobs whose unique key is freed
    all_of_them boolean;
BEGIN
    -- Most calls settle successes of one type in their first attempt: two thirds of the work of the general case.
    IF cardinality(_outcomes) = 0 AND greatest(cardinality(_leases), cardinality(_types), cardinality(_queues)) = 1 THEN
        WITH gone AS (
            DELETE FROM rowlock.running r
            WHERE r.job_id = ANY (_ids) AND r.owner = _owner AND r.lease = _leases[1]
            RETURNING r.job_id, r.attempt, r.deaths, r.releases_key, r.available_at
        ), over AS (
            INSERT INTO rowlock.finished (job_id, available_at, started_at, finished_at, lease, attempt, deaths, status, result)
            SELECT g.job_id, g.available_at, clock - u.seconds * interval '1 second', clock, _leases[1], g.attempt, g.deaths, 1, u.result::json
            FROM gone g JOIN unnest(_ids, _seconds, _results) AS u (id, seconds, result) ON u.id = g.job_id
        )
        SELECT array_agg(job_id), array_agg(job_id) FILTER (WHERE releases_key) INTO settled, freeing FROM gone;
        all_of_them := coalesce(cardinality(settled), 0) = cardinality(_ids);
        IF freeing IS NOT NULL THEN
            DELETE FROM rowlock.unique_keys k
            WHERE k.job_id = ANY (freeing) AND k.key = ANY (ARRAY(SELECT j.unique_key FROM rowlock.jobs j WHERE j.id = ANY (freeing)));
        END IF;
        INSERT INTO rowlock.counter_deltas (at, queue, type, alive, succeeded, seconds)
        SELECT clock, _queues[1], _types[1], -count(*), count(*), sum(u.seconds)
        FROM unnest(_ids, _seconds) AS u (id, seconds) WHERE all_of_them OR u.id = ANY (settled) HAVING count(*) > 0;
    ELSE
        WITH given AS MATERIALIZED (
            SELECT u.id, coalesce(u.lease, _leases[1]) AS lease, coalesce(u.outcome, 1) AS outcome, u.seconds,
                   coalesce(u.delay, 0) AS delay, u.result, u.error,
                   coalesce(u.type, _types[1]) AS type, coalesce(u.queue, _queues[1]) AS queue
            FROM unnest(_ids, _leases, _outcomes, _seconds, _delays, _results, _errors, _types, _queues)
                 AS u (id, lease, outcome, seconds, delay, result, error, type, queue)
        ), gone AS (
            -- The guard is a hashed list, not a join, which could be planned the wrong way round (IS TRUE prevents a join).
            DELETE FROM rowlock.running r
            WHERE r.job_id = ANY (_ids) AND r.owner = _owner
              AND ((r.job_id, r.lease) IN (SELECT t.id, t.lease FROM given t)) IS TRUE
            RETURNING r.job_id, r.lease, r.attempt, r.deaths, r.releases_key, r.cancel_requested, r.limit_key,
                      r.locked_at, r.available_at
        ), found AS MATERIALIZED (
            SELECT g.job_id, g.lease, g.releases_key, g.limit_key, g.locked_at, g.available_at,
                   g.attempt - (t.outcome IN (5, 7))::integer AS attempt,
                   g.deaths + (t.outcome IN (6, 7, 8))::integer AS deaths,
                   -- A job that is to be cancelled does not run again.
                   CASE WHEN t.outcome = 8 THEN 2 WHEN g.cancel_requested AND t.outcome > 3 THEN 3 ELSE t.outcome END AS outcome,
                   t.seconds, t.delay, t.result, t.error, t.type, t.queue, t.outcome AS reported
            FROM gone g JOIN given t ON t.id = g.job_id AND t.lease = g.lease
        ), over AS (
            INSERT INTO rowlock.finished (job_id, available_at, started_at, finished_at, lease, attempt, deaths, status, result, error)
            SELECT job_id, available_at, clock - seconds * interval '1 second', clock, lease, attempt, deaths, outcome, result::json, error
            FROM found WHERE outcome <= 3
        ), freed AS (
            DELETE FROM rowlock.unique_keys k
            WHERE k.job_id = ANY (ARRAY(SELECT job_id FROM found WHERE releases_key AND outcome <= 3))
              AND k.key = ANY (ARRAY(
                  SELECT j.unique_key FROM found f
                  CROSS JOIN LATERAL (SELECT x.unique_key FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j
                  WHERE f.releases_key AND f.outcome <= 3))
        ), unstarted AS (
            DELETE FROM rowlock.key_starts WHERE ctid = ANY (ARRAY(
                SELECT s.ctid FROM found f CROSS JOIN LATERAL (
                    SELECT x.ctid FROM rowlock.key_starts x
                    WHERE x.key = f.limit_key AND x.started_at = f.locked_at AND x.job_id = f.job_id AND x.lease = f.lease
                    OFFSET 0 FOR UPDATE SKIP LOCKED) s
                WHERE f.seconds IS NULL AND f.limit_key IS NOT NULL))
        ), again AS (
            SELECT j.seq, f.job_id, f.lease, j.priority, f.attempt, f.deaths, j.queue, j.limit_key, f.error, f.delay,
                   -- A job that did not start keeps the time since which it is available.
                   CASE WHEN f.seconds IS NULL THEN f.available_at ELSE clock END AS available_at
            FROM found f CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j
            WHERE f.outcome > 3
        ), soon AS (
            INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
            SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, clock, error FROM again
            WHERE delay <= 0
        ), later AS (
            INSERT INTO rowlock.delayed (job_id, seq, available_at, lease, priority, attempt, deaths, queue, limit_key, updated_at, error)
            SELECT job_id, seq, clock + delay * interval '1 second', lease, priority, attempt, deaths, queue, limit_key, clock, error
            FROM again WHERE delay > 0
        ), recorded AS (
            INSERT INTO rowlock.job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
                                              is_final_attempt, failed_reason, stack_trace, first_failed_at, started_at, owner,
                                              occurrences, last_failed_at)
            SELECT DISTINCT ON (x.id) x.id, f.job_id, j.type, j.queue, j.company_id, x.payload::json, f.attempt, j.max_attempts,
                   f.outcome = 2, coalesce(f.error, ''), x.stack, clock, clock - f.seconds * interval '1 second', _owner,
                   count(*) OVER same, CASE WHEN count(*) OVER same > 1 THEN clock END
            FROM json_to_recordset(_failures) AS x (id uuid, job uuid, lease integer, payload text, stack text)
            JOIN found f ON f.job_id = x.job AND f.lease = x.lease
            CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs y WHERE y.id = f.job_id OFFSET 0) j
            WINDOW same AS (PARTITION BY x.id)
            ON CONFLICT (id) DO UPDATE SET occurrences = job_failures.occurrences + excluded.occurrences, last_failed_at = clock
        ), tallied AS (
            INSERT INTO rowlock.counter_deltas (at, queue, type, alive, delayed, succeeded, failed, cancelled, failures, retries, seconds)
            SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
                   count(*) FILTER (WHERE outcome = 1), count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
                   count(*) FILTER (WHERE reported IN (2, 4, 6, 8)), count(*) FILTER (WHERE outcome = 4),
                   -- Released attempts are not counted, so their time is not either.
                   coalesce(sum(seconds) FILTER (WHERE outcome NOT IN (5, 7)), 0)
            FROM found WHERE outcome NOT IN (5, 7) OR delay > 0 GROUP BY queue, type
        )
        SELECT array_agg(job_id) INTO settled FROM found;
        all_of_them := coalesce(cardinality(settled), 0) = cardinality(_ids);
    END IF;

    IF all_of_them THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT i::text FROM unnest(_ids) AS u (i) WHERE i <> ALL (coalesce(settled, '{}')));
END $$;

-- What operators see at a glance: how long jobs had waited, minute by minute, and where and when a failed attempt ran.

CREATE TABLE rowlock.lags (
    minute  timestamptz PRIMARY KEY,
    seconds json NOT NULL                   -- by queue, how long its oldest ready job had waited
);

ALTER TABLE rowlock.job_failures ADD COLUMN started_at timestamptz; -- null: not known
ALTER TABLE rowlock.job_failures ADD COLUMN owner uuid;             -- the worker; null: not known

-- Identical failures that one record stands for, and when the last of them was; null: there was only the first.
ALTER TABLE rowlock.job_failures ADD COLUMN occurrences integer NOT NULL DEFAULT 1;
ALTER TABLE rowlock.job_failures ADD COLUMN last_failed_at timestamptz;

-- As before, and with the record of a failed attempt where and when it ran. An attempt without seconds never started: what
-- it took of its limit key's rate is given back.
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
    freeing     uuid[];                     -- those whose unique key is free now
    all_of_them boolean;
BEGIN
    -- Most calls bring successes of one type, claimed for the first time: two thirds of the work of the general case.
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
        INSERT INTO rowlock.tallies (at, queue, type, alive, succeeded, seconds)
        SELECT clock, _queues[1], _types[1], -count(*), count(*), sum(u.seconds)
        FROM unnest(_ids, _seconds) AS u (id, seconds) WHERE all_of_them OR u.id = ANY (settled) HAVING count(*) > 0;
    ELSE
        WITH told AS MATERIALIZED (
            SELECT u.id, coalesce(u.lease, _leases[1]) AS lease, coalesce(u.outcome, 1) AS outcome, u.seconds,
                   coalesce(u.delay, 0) AS delay, u.result, u.error,
                   coalesce(u.type, _types[1]) AS type, coalesce(u.queue, _queues[1]) AS queue
            FROM unnest(_ids, _leases, _outcomes, _seconds, _delays, _results, _errors, _types, _queues)
                 AS u (id, lease, outcome, seconds, delay, result, error, type, queue)
        ), gone AS (
            -- The guard is a hashed list, not a join, which could be planned the wrong way round (IS TRUE keeps it so).
            DELETE FROM rowlock.running r
            WHERE r.job_id = ANY (_ids) AND r.owner = _owner
              AND ((r.job_id, r.lease) IN (SELECT t.id, t.lease FROM told t)) IS TRUE
            RETURNING r.job_id, r.lease, r.attempt, r.deaths, r.releases_key, r.cancel_requested, r.limit_key,
                      r.locked_at, r.available_at
        ), found AS MATERIALIZED (
            SELECT g.job_id, g.lease, g.releases_key, g.limit_key, g.locked_at, g.available_at,
                   g.attempt - (t.outcome IN (5, 7))::integer AS attempt,
                   g.deaths + (t.outcome IN (6, 7, 8))::integer AS deaths,
                   -- What was to be cancelled does not run again.
                   CASE WHEN t.outcome = 8 THEN 2 WHEN g.cancel_requested AND t.outcome > 3 THEN 3 ELSE t.outcome END AS outcome,
                   t.seconds, t.delay, t.result, t.error, t.type, t.queue, t.outcome AS said
            FROM gone g JOIN told t ON t.id = g.job_id AND t.lease = g.lease
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
                   -- A job that did not start stays available since its old time.
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
            INSERT INTO rowlock.tallies (at, queue, type, alive, delayed, succeeded, failed, cancelled, failures, retries, seconds)
            SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
                   count(*) FILTER (WHERE outcome = 1), count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
                   count(*) FILTER (WHERE said IN (2, 4, 6, 8)), count(*) FILTER (WHERE outcome = 4),
                   -- The time of an attempt that was given back is nobody's: no end that is counted has it.
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

-- As before, and tells when each of the lost attempts began. The error names the worker in a line of its own: jobs are
-- grouped by the first one.
DROP FUNCTION rowlock.rescue(integer, text[], double precision[], timestamptz);
CREATE FUNCTION rowlock.rescue(_limit integer, _queues text[], _delays double precision[], _now timestamptz)
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
               'lease ran out: its worker was not seen for ' || g.visibility_ms || E' ms\nthe worker: ' || g.owner AS error
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
        INSERT INTO rowlock.tallies (at, queue, type, alive, delayed, failed, cancelled, failures, rescues)
        SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
               count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
               count(*) FILTER (WHERE outcome <> 3), count(*)
        FROM sorted GROUP BY queue, type
    )
    SELECT s.job_id::text, s.type, s.queue, s.owner::text, s.attempt, s.max_attempts, s.outcome,
           s.company_id, s.payload::text, s.error, s.locked_at FROM sorted s;
END $$;

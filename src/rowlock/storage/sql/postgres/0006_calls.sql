-- Calls of other services: those that count against a limit, the rests of a limit, and the subjects that calls are about.

CREATE TABLE rowlock.call_keys (
    key         text PRIMARY KEY,           -- whoever takes a call of it holds this row's lock
    rests_until timestamptz
) WITH (fillfactor = 50);

CREATE TABLE rowlock.call_permits (
    id      text NOT NULL,                  -- of the call
    key     text NOT NULL,
    free_at timestamptz NOT NULL,           -- it counts until then
    seconds double precision,               -- that it counts after its end; null: it has ended
    step    double precision NOT NULL,      -- 0, or seconds: after its end it goes into the sums
    PRIMARY KEY (id, key)
);
CREATE INDEX call_permits_in_time ON rowlock.call_permits (key, free_at);

CREATE TABLE rowlock.call_sums (
    key     text NOT NULL,
    free_at timestamptz NOT NULL,           -- these count until then
    calls   integer NOT NULL,
    PRIMARY KEY (key, free_at)
) WITH (fillfactor = 50);

CREATE TABLE rowlock.subjects (
    kind       text NOT NULL,
    key        text NOT NULL,
    holder     text,                        -- null: nobody
    held_until timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    marks      jsonb NOT NULL DEFAULT '{}', -- by property, what wrote it last
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 70);
CREATE INDEX subjects_in_time ON rowlock.subjects (touched_at);

CREATE INDEX job_failures_of_queue ON rowlock.job_failures (queue_name, first_failed_at, id);

-- Takes a call of all these keys, which are sorted: 0. Else the seconds to wait, and nothing is taken; -1: it has ended.
CREATE FUNCTION rowlock.take_call(
    _id text, _keys text[], _counts integer[], _seconds double precision[], _steps double precision[],
    _hold double precision, _now timestamptz
) RETURNS double precision
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz;
    until timestamptz;
BEGIN
    IF (SELECT count(*) FROM rowlock.call_keys k WHERE k.key = ANY (_keys)) < cardinality(_keys) THEN
        INSERT INTO rowlock.call_keys (key) SELECT u.key FROM unnest(_keys) AS u (key) ORDER BY 1 ON CONFLICT DO NOTHING;
    END IF;
    PERFORM FROM rowlock.call_keys k WHERE k.key = ANY (_keys) ORDER BY k.key FOR UPDATE;
    -- Now, and not before the wait for others: the call begins after this.
    clock := coalesce(_now, clock_timestamp());

    IF EXISTS (SELECT FROM rowlock.call_permits p WHERE p.id = _id) THEN
        UPDATE rowlock.call_permits p SET free_at = clock + (_hold + p.seconds) * interval '1 second'
        WHERE p.id = _id AND p.seconds IS NOT NULL;
        RETURN CASE WHEN FOUND THEN 0 ELSE -1 END;
    END IF;

    -- A new snapshot, taken after the locks: the sums are exact. A call that has not ended is taken to end now: it cannot
    -- be free sooner.
    SELECT max(greatest(k.rests_until, c.free_at)) INTO until
    FROM unnest(_keys, _counts) AS l (key, count)
    CROSS JOIN LATERAL (SELECT x.rests_until FROM rowlock.call_keys x WHERE x.key = l.key OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT max(t.free_at) AS free_at
        FROM (SELECT u.free_at, sum(u.calls) OVER (ORDER BY u.free_at DESC) AS together
              FROM (SELECT least(p.free_at, clock + p.seconds * interval '1 second') AS free_at, 1 AS calls
                    FROM rowlock.call_permits p WHERE p.key = l.key AND p.free_at > clock
                    UNION ALL
                    SELECT s.free_at, s.calls FROM rowlock.call_sums s WHERE s.key = l.key AND s.free_at > clock) u) t
        WHERE t.together >= l.count) c;
    IF until > clock THEN
        RETURN extract(epoch FROM until - clock);
    END IF;

    -- Those that do not count any more, but not all of them: while an old transaction keeps vacuum from removing the dead
    -- rows, each look at them would take longer than the last.
    DELETE FROM rowlock.call_permits WHERE ctid = ANY (ARRAY(
        SELECT p.ctid FROM rowlock.call_permits p
        WHERE p.key = ANY (_keys) AND p.free_at <= clock AND p.free_at > clock - interval '1 minute'
        FOR UPDATE SKIP LOCKED));
    INSERT INTO rowlock.call_permits (id, key, free_at, seconds, step)
    SELECT _id, l.key, clock + (_hold + l.seconds) * interval '1 second', l.seconds, l.step
    FROM unnest(_keys, _seconds, _steps) AS l (key, seconds, step);
    RETURN 0;
END $$;

-- Ends a call: it counts for the seconds of its limits from now on, or not at all where it was not made.
CREATE FUNCTION rowlock.end_call(_id text, _made boolean, _now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
BEGIN
    -- Not to wait for the disk: an end that is lost in a crash makes the call count for longer, never shorter.
    PERFORM set_config('synchronous_commit', 'off', true);
    IF _made THEN
        UPDATE rowlock.call_permits p SET free_at = clock + p.seconds * interval '1 second', seconds = NULL
        WHERE p.id = _id AND p.seconds IS NOT NULL AND p.step = 0;
    END IF;
    WITH gone AS (
        DELETE FROM rowlock.call_permits p WHERE p.id = _id AND p.seconds IS NOT NULL
        RETURNING key, step, clock + seconds * interval '1 second' AS free_at
    )
    INSERT INTO rowlock.call_sums AS s (key, free_at, calls)
    -- The sum of those that are free at the end of the same step; a call never counts too short.
    SELECT g.key, greatest(g.free_at, to_timestamp(ceil(extract(epoch FROM g.free_at) / g.step::numeric) * g.step::numeric)), 1
    FROM gone g WHERE _made ORDER BY g.key
    ON CONFLICT (key, free_at) DO UPDATE SET calls = s.calls + 1;
END $$;

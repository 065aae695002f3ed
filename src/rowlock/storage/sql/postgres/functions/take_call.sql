-- Takes a permit for a call from each of these limits, whose keys are sorted. Returns 0 if it was taken, the seconds to wait
-- if not, -1 if the call has ended.
CREATE OR REPLACE FUNCTION rowlock.take_call(
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
    -- Read after the wait for the locks: the call begins now.
    clock := coalesce(_now, clock_timestamp());

    IF EXISTS (SELECT FROM rowlock.call_permits p WHERE p.id = _id) THEN
        UPDATE rowlock.call_permits p SET free_at = clock + (_hold + p.seconds) * interval '1 second'
        WHERE p.id = _id AND p.seconds IS NOT NULL;
        RETURN CASE WHEN FOUND THEN 0 ELSE -1 END;
    END IF;

    -- A new snapshot, taken after the locks: the sums are exact. A call that has not ended is assumed to end
    -- now: its permit cannot be free sooner.
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

    -- Delete permits that no longer count, but not the older ones: while an old transaction keeps vacuum from removing dead
    -- rows, each scan of them would take longer than the last.
    DELETE FROM rowlock.call_permits WHERE ctid = ANY (ARRAY(
        SELECT p.ctid FROM rowlock.call_permits p
        WHERE p.key = ANY (_keys) AND p.free_at <= clock AND p.free_at > clock - interval '1 minute'
        FOR UPDATE SKIP LOCKED));
    INSERT INTO rowlock.call_permits (id, key, free_at, seconds, step)
    SELECT _id, l.key, clock + (_hold + l.seconds) * interval '1 second', l.seconds, l.step
    FROM unnest(_keys, _seconds, _steps) AS l (key, seconds, step);
    RETURN 0;
END $$;

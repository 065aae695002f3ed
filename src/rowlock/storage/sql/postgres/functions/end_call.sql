-- Ends a call: it counts for the seconds of its limits from now on, or not at all if it was not made.
CREATE OR REPLACE FUNCTION rowlock.end_call(_id text, _made boolean, _now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
BEGIN
    -- No wait for the disk: if a crash loses the end, the call counts for longer, never for shorter.
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
    -- Rounded up to the end of the step: a call never counts for too short.
    SELECT g.key, greatest(g.free_at, to_timestamp(ceil(extract(epoch FROM g.free_at) / g.step::numeric) * g.step::numeric)), 1
    FROM gone g WHERE _made ORDER BY g.key
    ON CONFLICT (key, free_at) DO UPDATE SET calls = s.calls + 1;
END $$;

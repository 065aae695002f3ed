-- Returns what is known of a request with an idempotency key, and takes the request if it is new or broken off.
CREATE OR REPLACE FUNCTION rowlock.begin_request(
    _key text, _fingerprint text, _job_id uuid, _keep_seconds double precision, _stale_seconds double precision,
    _now timestamptz
) RETURNS TABLE (state text, job_id text, begun_at timestamptz, status integer, body text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
    ends  timestamptz := clock + _keep_seconds * interval '1 second';
    begun timestamptz;
    held  rowlock.requests;
    answer  text;
BEGIN
    -- The row of a key in use is locked as well, so that it does not change before it is judged below.
    INSERT INTO rowlock.requests AS r (key, fingerprint, job_id, begun_at, expires_at)
    VALUES (_key, _fingerprint, _job_id, clock, ends)
    ON CONFLICT (key) DO UPDATE
    SET fingerprint = excluded.fingerprint, job_id = excluded.job_id,
        begun_at = greatest(excluded.begun_at, r.begun_at + interval '1 microsecond'),
        released = false, expires_at = excluded.expires_at, status = NULL, body = NULL
    WHERE r.expires_at <= clock
    RETURNING r.begun_at INTO begun;
    IF FOUND THEN
        RETURN QUERY SELECT 'new', _job_id::text, begun, NULL::integer, NULL::text;
        RETURN;
    END IF;
    SELECT * INTO held FROM rowlock.requests r WHERE r.key = _key;
    answer := CASE
        WHEN held.fingerprint <> _fingerprint THEN 'other'
        WHEN held.status IS NOT NULL THEN 'done'
        WHEN held.released OR held.begun_at < clock - _stale_seconds * interval '1 second' THEN 'broken_off'
        ELSE 'running' END;
    begun := held.begun_at;
    IF answer = 'broken_off' THEN
        begun := greatest(clock, begun + interval '1 microsecond');
        UPDATE rowlock.requests r SET begun_at = begun, released = false, expires_at = ends WHERE r.key = _key;
    END IF;
    RETURN QUERY SELECT answer, held.job_id::text, begun, CASE answer WHEN 'done' THEN held.status END,
                        CASE answer WHEN 'done' THEN held.body END;
END $$;

-- Who may use the HTTP API, what was asked of it before, and what has changed.

CREATE TABLE rowlock.tokens (
    id           uuid PRIMARY KEY,
    digest       text NOT NULL UNIQUE,      -- SHA-256 in hex: the token itself is kept nowhere
    name         text NOT NULL,
    role         text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    company_id   text,                      -- null: of all companies
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,               -- null: never
    last_used_at timestamptz,
    revoked_at   timestamptz
) WITH (fillfactor = 50);

CREATE TABLE rowlock.requests (
    key         text PRIMARY KEY,
    fingerprint text NOT NULL,              -- of what was asked under this key
    job_id      uuid NOT NULL,              -- reserved for the job that it enqueues
    begun_at    timestamptz NOT NULL,       -- names the try that does it: another one at every take-over
    released    boolean NOT NULL DEFAULT false, -- broken off for sure
    expires_at  timestamptz NOT NULL,
    status      integer,                    -- of the answer; null: not ended
    body        text
);
CREATE INDEX requests_in_time ON rowlock.requests (expires_at);

-- Says what is known of a request, and takes it where it is the caller's to do.
CREATE FUNCTION rowlock.begin_request(
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
    said  text;
BEGIN
    -- Where the key is in use its row is locked all the same, so that it stays as it is judged below.
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
    said := CASE
        WHEN held.fingerprint <> _fingerprint THEN 'other'
        WHEN held.status IS NOT NULL THEN 'done'
        WHEN held.released OR held.begun_at < clock - _stale_seconds * interval '1 second' THEN 'broken_off'
        ELSE 'running' END;
    begun := held.begun_at;
    IF said = 'broken_off' THEN
        begun := greatest(clock, begun + interval '1 microsecond');
        UPDATE rowlock.requests r SET begun_at = begun, released = false, expires_at = ends WHERE r.key = _key;
    END IF;
    RETURN QUERY SELECT said, held.job_id::text, begun, CASE said WHEN 'done' THEN held.status END,
                        CASE said WHEN 'done' THEN held.body END;
END $$;

-- Jobs that changed at or after a moment, the oldest change first; one row without a job where there is none.
-- A job is in one table, and that table knows when it came there, so each job is found once, as it is. Jobs and finished
-- arrive in order of time: their range indexes find what is new, as long as no plan of other days is kept.
CREATE FUNCTION rowlock.changes(_since timestamptz, _limit integer, _now timestamptz)
RETURNS TABLE (looked_at timestamptz, id text, type text, queue text, status text, attempts integer, max_attempts integer,
               lease integer, progress integer, message text, error text, company_id text, changed_at timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan SET jit = off SET max_parallel_workers_per_gather = 0
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp()); -- before the look, which misses what commits after it
BEGIN
    RETURN QUERY
    WITH changed AS (
        (SELECT f.job_id, f.finished_at AS at,
                CASE f.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS status,
                f.attempt, f.lease, NULL::smallint AS progress, NULL::text AS message, f.error
         FROM rowlock.finished f WHERE f.finished_at >= _since
         ORDER BY f.finished_at, f.job_id LIMIT _limit)
        UNION ALL
        (SELECT r.job_id, greatest(r.locked_at, r.updated_at), 'processing', r.attempt, r.lease, r.progress, r.message, NULL
         FROM rowlock.running r WHERE greatest(r.locked_at, r.updated_at) >= _since
         ORDER BY 2, 1 LIMIT _limit)
        UNION ALL
        (SELECT y.job_id, y.updated_at, 'queued', y.attempt, y.lease, NULL, NULL, y.error
         FROM rowlock.ready y WHERE y.updated_at >= _since
         ORDER BY y.updated_at, y.job_id LIMIT _limit)
        UNION ALL
        (SELECT d.job_id, d.updated_at, 'queued', d.attempt, d.lease, NULL, NULL, d.error
         FROM rowlock.delayed d WHERE d.updated_at >= _since
         ORDER BY d.updated_at, d.job_id LIMIT _limit)
        UNION ALL
        -- Enqueued, and nothing since.
        (SELECT j.id, j.created_at, 'queued', 0, 0, NULL, NULL, NULL
         FROM (SELECT x.id, x.created_at, x.queue, x.priority, x.seq, x.limit_key FROM rowlock.jobs x
               WHERE x.created_at >= _since ORDER BY x.created_at, x.id OFFSET 0) j
         CROSS JOIN LATERAL (
             SELECT 1 FROM rowlock.ready y
             WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.updated_at IS NULL
               AND y.limit_key IS NULL AND j.limit_key IS NULL
             UNION ALL
             SELECT 1 FROM rowlock.ready y
             WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.updated_at IS NULL
               AND y.limit_key = j.limit_key
             UNION ALL
             SELECT 1 FROM rowlock.delayed d WHERE d.job_id = j.id AND d.updated_at IS NULL) waiting
         ORDER BY j.created_at, j.id LIMIT _limit)
    )
    SELECT clock, c.job_id::text, j.type, j.queue, c.status, c.attempt::integer, j.max_attempts::integer, c.lease::integer,
           c.progress::integer, c.message, c.error, j.company_id, c.at
    FROM (VALUES (0)) once
    LEFT JOIN (SELECT * FROM changed ORDER BY at, job_id LIMIT _limit) c ON true
    LEFT JOIN LATERAL (
        SELECT x.type, x.queue, x.max_attempts, x.company_id FROM rowlock.jobs x WHERE x.id = c.job_id OFFSET 0) j ON true
    ORDER BY c.at, c.job_id;
END $$;

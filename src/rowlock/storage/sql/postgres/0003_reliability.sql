-- Locks of work that must not be done twice, schedules, and what was said to people.

CREATE TABLE rowlock.job_idempotency_locks (
    company_id   text NOT NULL,             -- '': none
    job_key      text NOT NULL,
    scope_key    text NOT NULL,
    status       text NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    payload_hash text NOT NULL,
    token        bigint NOT NULL,           -- the fencing token: grows whenever the lock is taken
    holder       text NOT NULL,             -- the job, or whoever else
    locked_at    timestamptz NOT NULL,
    ended_at     timestamptz,
    PRIMARY KEY (company_id, job_key, scope_key)
);
CREATE INDEX job_idempotency_locks_ended ON rowlock.job_idempotency_locks (ended_at) WHERE ended_at IS NOT NULL;

-- Takes a lock, or says why not. The row is locked while its state is judged, so that only one of two may take it over.
CREATE FUNCTION rowlock.take_lock(
    _company_id text, _job_key text, _scope_key text, _payload_hash text, _holder text,
    _stale_seconds double precision, _now timestamptz
) RETURNS TABLE (decision text, token bigint, holder text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
    held  rowlock.job_idempotency_locks;
    said  text;
    first bigint := floor(extract(epoch FROM clock) * 1000); -- higher than any of a lock that was removed since
BEGIN
    LOOP
        INSERT INTO rowlock.job_idempotency_locks
        VALUES (_company_id, _job_key, _scope_key, 'running', _payload_hash, first, _holder, clock, NULL)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT 'proceed', first, NULL::text;
            RETURN;
        END IF;
        SELECT * INTO held FROM rowlock.job_idempotency_locks l
        WHERE l.company_id = _company_id AND l.job_key = _job_key AND l.scope_key = _scope_key FOR UPDATE;
        EXIT WHEN FOUND; -- else it was removed meanwhile
    END LOOP;
    said := CASE
        WHEN held.status = 'running' AND held.holder <> _holder
             AND held.locked_at > clock - _stale_seconds * interval '1 second' THEN 'already_running'
        WHEN held.status = 'running' THEN 'take_over'
        WHEN held.status = 'completed' AND held.payload_hash = _payload_hash THEN 'already_completed'
        WHEN held.status = 'completed' THEN 'rerun'
        ELSE 'retry' END;
    IF said NOT LIKE 'already%' THEN
        UPDATE rowlock.job_idempotency_locks l
        SET status = 'running', payload_hash = _payload_hash, token = held.token + 1, holder = _holder,
            locked_at = clock, ended_at = NULL
        WHERE l.company_id = _company_id AND l.job_key = _job_key AND l.scope_key = _scope_key;
        RETURN QUERY SELECT said, held.token + 1, held.holder;
    ELSE
        RETURN QUERY SELECT said, held.token, held.holder;
    END IF;
END $$;

CREATE TABLE rowlock.schedules (
    name      text PRIMARY KEY,
    spec      text NOT NULL,
    next_at   timestamptz NOT NULL,
    last_tick timestamptz,
    paused_at timestamptz
);

CREATE TABLE rowlock.schedule_runs (
    name        text NOT NULL,
    tick        timestamptz NOT NULL,
    job_id      uuid,                       -- null: missed
    enqueued_at timestamptz NOT NULL,
    status      text NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    error       text,
    PRIMARY KEY (name, tick)                -- one tick, one run, however many machines
);
CREATE INDEX schedule_runs_in_time ON rowlock.schedule_runs (tick, name);
CREATE INDEX schedule_runs_open ON rowlock.schedule_runs (job_id) WHERE ended_at IS NULL;
CREATE INDEX schedule_runs_ended ON rowlock.schedule_runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE rowlock.alerts (
    name  text PRIMARY KEY,
    since timestamptz NOT NULL
);

ALTER TABLE rowlock.job_failures ADD COLUMN notice_id uuid; -- of the message to staff that names it
CREATE INDEX job_failures_unsaid ON rowlock.job_failures (first_failed_at) WHERE is_final_attempt AND notice_id IS NULL;
CREATE INDEX job_failures_said ON rowlock.job_failures (notice_id) WHERE notice_id IS NOT NULL;

-- What worker processes have measured, added up.
CREATE TABLE rowlock.measures (
    name   text NOT NULL,
    labels text NOT NULL,                   -- JSON object, keys sorted
    value  double precision NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);

-- Locks of work that must not be done twice, schedules, and what was said to people.

CREATE TABLE job_idempotency_locks (
    company_id   TEXT    NOT NULL,               -- '': none
    job_key      TEXT    NOT NULL,
    scope_key    TEXT    NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    payload_hash TEXT    NOT NULL,
    token        INTEGER NOT NULL,               -- the fencing token: grows whenever the lock is taken
    holder       TEXT    NOT NULL,               -- the job, or whoever else
    locked_at    INTEGER NOT NULL,
    ended_at     INTEGER,
    PRIMARY KEY (company_id, job_key, scope_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_idempotency_locks_ended ON job_idempotency_locks (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE schedules (
    name      TEXT    NOT NULL PRIMARY KEY,
    spec      TEXT    NOT NULL,
    next_at   INTEGER NOT NULL,
    last_tick INTEGER,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule_runs (
    name        TEXT    NOT NULL,
    tick        INTEGER NOT NULL,
    job_id      TEXT,                            -- NULL: missed
    enqueued_at INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    error       TEXT,
    PRIMARY KEY (name, tick)                     -- one tick, one run, however many processes
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_runs_in_time ON schedule_runs (tick, name);
CREATE INDEX schedule_runs_open ON schedule_runs (job_id) WHERE ended_at IS NULL;
CREATE INDEX schedule_runs_ended ON schedule_runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE alerts (
    name  TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE job_failures ADD COLUMN notice_id TEXT; -- of the message to staff that names it
CREATE INDEX job_failures_unsaid ON job_failures (first_failed_at) WHERE is_final_attempt = 1 AND notice_id IS NULL;
CREATE INDEX job_failures_said ON job_failures (notice_id) WHERE notice_id IS NOT NULL;

-- What worker processes have measured, added up.
CREATE TABLE measures (
    name   TEXT NOT NULL,
    labels TEXT NOT NULL,                        -- JSON object, keys sorted
    value  REAL NOT NULL,
    PRIMARY KEY (name, labels)
) STRICT, WITHOUT ROWID;

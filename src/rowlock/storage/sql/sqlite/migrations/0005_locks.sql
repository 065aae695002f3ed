-- Idempotency locks: work that must run once, by company, job and scope.
CREATE TABLE job_idempotency_locks (
    company_id   TEXT    NOT NULL,               -- '': none
    job_key      TEXT    NOT NULL,
    scope_key    TEXT    NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    payload_hash TEXT    NOT NULL,
    token        INTEGER NOT NULL,               -- fencing token: grows each time the lock is taken
    holder       TEXT    NOT NULL,               -- id of the job, or another name
    locked_at    INTEGER NOT NULL,
    ended_at     INTEGER,
    PRIMARY KEY (company_id, job_key, scope_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_idempotency_locks_ended ON job_idempotency_locks (ended_at) WHERE ended_at IS NOT NULL;

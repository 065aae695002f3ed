-- Idempotency locks: work that must run once, by company, job and scope.
CREATE TABLE rowlock.job_idempotency_locks (
    company_id   text NOT NULL,             -- '': none
    job_key      text NOT NULL,
    scope_key    text NOT NULL,
    status       text NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    payload_hash text NOT NULL,
    token        bigint NOT NULL,           -- fencing token: grows each time the lock is taken
    holder       text NOT NULL,             -- id of the job, or another name
    locked_at    timestamptz NOT NULL,
    ended_at     timestamptz,
    PRIMARY KEY (company_id, job_key, scope_key)
);
CREATE INDEX job_idempotency_locks_ended ON rowlock.job_idempotency_locks (ended_at) WHERE ended_at IS NOT NULL;

-- Failed attempts, and alerts about them.

-- Every failed attempt, written in the transaction that settles it.
CREATE TABLE rowlock.job_failures (
    id               uuid PRIMARY KEY,
    job_id           uuid NOT NULL,
    job_name         text NOT NULL,
    queue_name       text NOT NULL,
    company_id       text,
    payload          json NOT NULL,         -- redacted
    attempts         integer NOT NULL,      -- number of the failed attempt
    max_attempts     integer NOT NULL,
    is_final_attempt boolean NOT NULL,
    failed_reason    text NOT NULL,
    stack_trace      text,
    owner            uuid,                  -- the worker; null: unknown
    started_at       timestamptz,           -- null: unknown
    first_failed_at  timestamptz NOT NULL,
    last_failed_at   timestamptz,           -- of the last identical failure; null: there was one only
    occurrences      integer NOT NULL DEFAULT 1, -- identical failures that this row counts
    resolved_at      timestamptz,
    notice_id        uuid                   -- of the notification that names it
);
CREATE INDEX job_failures_of_job ON rowlock.job_failures (job_id);
CREATE INDEX job_failures_in_time ON rowlock.job_failures (first_failed_at, id);
CREATE INDEX job_failures_of_name ON rowlock.job_failures (job_name, first_failed_at, id);
CREATE INDEX job_failures_of_queue ON rowlock.job_failures (queue_name, first_failed_at, id);
CREATE INDEX job_failures_of_company ON rowlock.job_failures (company_id, first_failed_at, id) WHERE company_id IS NOT NULL;
CREATE INDEX job_failures_unnotified ON rowlock.job_failures (first_failed_at) WHERE is_final_attempt AND notice_id IS NULL;
CREATE INDEX job_failures_notified ON rowlock.job_failures (notice_id) WHERE notice_id IS NOT NULL;

-- Alerts that are raised at the moment.
CREATE TABLE rowlock.alerts (
    name  text PRIMARY KEY,
    since timestamptz NOT NULL
);

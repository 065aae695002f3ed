-- Failed attempts, and alerts about them.

-- Every failed attempt, written in the transaction that settles it.
CREATE TABLE job_failures (
    id               TEXT    NOT NULL PRIMARY KEY,
    job_id           TEXT    NOT NULL,
    job_name         TEXT    NOT NULL,
    queue_name       TEXT    NOT NULL,
    company_id       TEXT,
    payload          TEXT    NOT NULL,           -- redacted
    attempts         INTEGER NOT NULL,           -- number of the failed attempt
    max_attempts     INTEGER NOT NULL,
    is_final_attempt INTEGER NOT NULL,
    failed_reason    TEXT    NOT NULL,
    stack_trace      TEXT,
    owner            TEXT,                       -- the worker; NULL: unknown
    started_at       INTEGER,                    -- NULL: unknown
    first_failed_at  INTEGER NOT NULL,
    last_failed_at   INTEGER,                    -- of the last identical failure; NULL: there was one only
    occurrences      INTEGER NOT NULL DEFAULT 1, -- identical failures that this row counts
    resolved_at      INTEGER,
    notice_id        TEXT                        -- of the notification that names it
) STRICT;

CREATE INDEX job_failures_of_job ON job_failures (job_id);
CREATE INDEX job_failures_in_time ON job_failures (first_failed_at, id);
CREATE INDEX job_failures_of_name ON job_failures (job_name, first_failed_at, id);
CREATE INDEX job_failures_of_queue ON job_failures (queue_name, first_failed_at, id);
CREATE INDEX job_failures_of_company ON job_failures (company_id, first_failed_at, id) WHERE company_id IS NOT NULL;
CREATE INDEX job_failures_unnotified ON job_failures (first_failed_at) WHERE is_final_attempt = 1 AND notice_id IS NULL;
CREATE INDEX job_failures_notified ON job_failures (notice_id) WHERE notice_id IS NOT NULL;

-- Alerts that are raised at the moment.
CREATE TABLE alerts (
    name  TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

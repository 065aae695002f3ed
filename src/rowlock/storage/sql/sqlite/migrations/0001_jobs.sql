-- The tables are the states: a job is in exactly one of ready, delayed, running and finished, while its payload stays in
-- jobs. Times are microseconds since 1970 in UTC.

-- What never changes about a job, except a payload that a newer enqueue of the same key has replaced.
CREATE TABLE jobs (
    seq           INTEGER PRIMARY KEY,           -- first in, first out
    id            TEXT    NOT NULL UNIQUE,
    type          TEXT    NOT NULL,
    queue         TEXT    NOT NULL,
    priority      INTEGER NOT NULL,
    max_attempts  INTEGER NOT NULL,
    visibility_ms INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    available_at  INTEGER,                       -- NULL: at once
    company_id    TEXT,
    limit_key     TEXT    NOT NULL,              -- '': none
    unique_key    TEXT,
    releases_key  INTEGER NOT NULL,              -- 1: the end of the job frees its unique key
    trace         TEXT,
    newest        TEXT,                          -- id of the newest enqueue that was answered with this job; NULL: its own
    payload       TEXT    NOT NULL               -- last, so that the other columns are read without it
) STRICT;

CREATE INDEX jobs_of_company ON jobs (company_id, seq) WHERE company_id IS NOT NULL;

-- Jobs that can be claimed now. One tree in the order of the claim: first the jobs without a limit key, then key by key.
CREATE TABLE ready (
    queue        TEXT    NOT NULL,
    limit_key    TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    lease        INTEGER NOT NULL,               -- number of the last lease; 0: none yet
    attempt      INTEGER NOT NULL,               -- attempts spent
    deaths       INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    queued_at    INTEGER,                        -- NULL: when it was created
    error        TEXT,                           -- of the last attempt
    PRIMARY KEY (queue, limit_key, priority, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX ready_again ON ready (queued_at) WHERE queued_at IS NOT NULL;
CREATE INDEX ready_since ON ready (queue, available_at);

-- Jobs that become available later. A claim moves those that are due to ready.
CREATE TABLE delayed (
    seq          INTEGER PRIMARY KEY,
    queue        TEXT    NOT NULL,
    available_at INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    limit_key    TEXT    NOT NULL,
    lease        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    deaths       INTEGER NOT NULL,
    queued_at    INTEGER,
    error        TEXT
) STRICT;

CREATE INDEX delayed_due ON delayed (queue, available_at);
CREATE INDEX delayed_again ON delayed (queued_at) WHERE queued_at IS NOT NULL;

-- Jobs under a lease.
CREATE TABLE running (
    job_id           TEXT    NOT NULL PRIMARY KEY,
    seq              INTEGER NOT NULL,
    owner            TEXT    NOT NULL,
    locked_at        INTEGER NOT NULL,
    lease            INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    deaths           INTEGER NOT NULL,
    visibility_ms    INTEGER NOT NULL,
    releases_key     INTEGER NOT NULL,
    limit_key        TEXT    NOT NULL,
    available_at     INTEGER NOT NULL,           -- when this attempt became available
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress         INTEGER,
    message          TEXT,
    changed_at       INTEGER                     -- last progress report or cancel request; NULL: neither since the claim
) STRICT, WITHOUT ROWID;

CREATE INDEX running_of_key ON running (limit_key) WHERE limit_key <> '';
CREATE INDEX running_to_cancel ON running (job_id) WHERE cancel_requested = 1;

-- Jobs that have ended.
CREATE TABLE finished (
    seq          INTEGER PRIMARY KEY,
    outcome      INTEGER NOT NULL,               -- 1 succeeded, 2 failed, 3 cancelled
    lease        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    deaths       INTEGER NOT NULL,
    available_at INTEGER NOT NULL,               -- when the last attempt became available
    started_at   INTEGER,                        -- NULL: it never started
    finished_at  INTEGER NOT NULL,
    result       TEXT,
    error        TEXT
) STRICT;

CREATE INDEX finished_in_time ON finished (outcome, finished_at);
CREATE INDEX finished_badly ON finished (seq) WHERE outcome > 1;

-- Keys that jobs hold, so that a second enqueue with the same key creates no second job.
CREATE TABLE unique_keys (
    key        TEXT NOT NULL PRIMARY KEY,
    job_id     TEXT NOT NULL,
    expires_at INTEGER                           -- NULL: never
) STRICT, WITHOUT ROWID;

CREATE INDEX unique_keys_expiring ON unique_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Worker processes and their last heartbeat. A heartbeat renews every lease of its worker.
CREATE TABLE workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    queues     TEXT    NOT NULL,                 -- JSON array
    types      TEXT    NOT NULL DEFAULT '[]',    -- JSON array: job types that it has handlers for
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Every job in one row, for the store.
CREATE VIEW job_records AS
SELECT j.seq, j.id, j.type, j.queue,
    CASE
        WHEN f.outcome = 1 THEN 'succeeded'
        WHEN f.outcome = 2 THEN 'failed'
        WHEN f.outcome = 3 THEN 'cancelled'
        WHEN x.seq IS NOT NULL THEN 'processing'
        ELSE 'queued'
    END AS status,
    j.payload, j.priority,
    coalesce(f.attempt, x.attempt, r.attempt, d.attempt) AS attempts,
    j.max_attempts,
    coalesce(f.deaths, x.deaths, r.deaths, d.deaths) AS deaths,
    coalesce(f.lease, x.lease, r.lease, d.lease) AS lease,
    j.visibility_ms, j.created_at,
    coalesce(f.available_at, x.available_at, r.available_at, d.available_at) AS available_at,
    coalesce(f.finished_at, max(x.locked_at, coalesce(w.seen_at, 0)), r.queued_at, d.queued_at, j.created_at) AS updated_at,
    max(x.locked_at, coalesce(w.seen_at, 0)) AS locked_at,
    x.owner AS lock_owner,
    coalesce(f.started_at, x.locked_at) AS started_at,
    f.finished_at, x.progress, x.message,
    coalesce(x.cancel_requested, 0) AS cancel_requested,
    f.result,
    coalesce(f.error, r.error, d.error) AS error,
    j.company_id,
    nullif(j.limit_key, '') AS limit_key,
    j.unique_key, j.trace
FROM jobs j
LEFT JOIN finished f ON f.seq = j.seq
LEFT JOIN running x ON x.job_id = j.id
LEFT JOIN workers w ON w.id = x.owner
LEFT JOIN ready r ON r.queue = j.queue AND r.limit_key = j.limit_key AND r.priority = j.priority AND r.seq = j.seq
LEFT JOIN delayed d ON d.seq = j.seq;

-- Every job in one row, for people.
CREATE VIEW all_jobs AS
SELECT id, type, queue, status, payload, priority, attempts, max_attempts, deaths, lease, visibility_ms,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1e6, 'unixepoch') AS available_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', locked_at / 1e6, 'unixepoch') AS locked_at,
    lock_owner,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch') AS finished_at,
    progress, message, cancel_requested, result, error, company_id, limit_key, unique_key, trace
FROM job_records;

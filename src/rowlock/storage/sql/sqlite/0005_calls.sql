-- Calls of other services: those that count against a limit, the rests of a limit, and the subjects that calls are about.

CREATE TABLE call_keys (
    key         TEXT    NOT NULL PRIMARY KEY,
    rests_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE call_permits (
    id      TEXT    NOT NULL,                    -- of the call
    key     TEXT    NOT NULL,
    free_at INTEGER NOT NULL,                    -- it counts until then
    seconds INTEGER,                             -- microseconds that it counts after its end; NULL: it has ended
    step    INTEGER NOT NULL,                    -- 0, or microseconds: after its end it goes into the sums
    PRIMARY KEY (id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX call_permits_in_time ON call_permits (key, free_at);

CREATE TABLE call_sums (
    key     TEXT    NOT NULL,
    free_at INTEGER NOT NULL,                    -- these count until then
    calls   INTEGER NOT NULL,
    PRIMARY KEY (key, free_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE subjects (
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    holder     TEXT,                             -- NULL: nobody
    held_until INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    marks      TEXT    NOT NULL DEFAULT '{}',    -- JSON: by property, what wrote it last
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX subjects_in_time ON subjects (touched_at);

CREATE INDEX job_failures_of_queue ON job_failures (queue_name, first_failed_at, id);

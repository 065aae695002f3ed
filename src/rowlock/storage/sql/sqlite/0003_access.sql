-- Who may use the HTTP API, and what was asked of it before.

CREATE TABLE tokens (
    id           TEXT    NOT NULL PRIMARY KEY,
    digest       TEXT    NOT NULL UNIQUE,        -- SHA-256 in hex: the token itself is kept nowhere
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    company_id   TEXT,                           -- NULL: of all companies
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,                        -- NULL: never
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    key         TEXT    NOT NULL PRIMARY KEY,
    fingerprint TEXT    NOT NULL,                -- of what was asked under this key
    job_id      TEXT    NOT NULL,                -- reserved for the job that it enqueues
    begun_at    INTEGER NOT NULL,                -- names the try that does it: another one at every take-over
    released    INTEGER NOT NULL DEFAULT 0,      -- 1: broken off for sure
    expires_at  INTEGER NOT NULL,
    status      INTEGER,                         -- of the answer; NULL: not ended
    body        TEXT
) STRICT;

CREATE INDEX requests_in_time ON requests (expires_at);

-- Access to the HTTP API.

-- API tokens.
CREATE TABLE tokens (
    id           TEXT    NOT NULL PRIMARY KEY,
    digest       TEXT    NOT NULL UNIQUE,        -- SHA-256 in hex; the token itself is not stored
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    company_id   TEXT,                           -- NULL: all companies
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,                        -- NULL: never
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;

-- Requests with an idempotency key, and their answers.
CREATE TABLE requests (
    key         TEXT    NOT NULL PRIMARY KEY,
    fingerprint TEXT    NOT NULL,                -- of the request's content
    job_id      TEXT    NOT NULL,                -- reserved for the job that the request enqueues
    begun_at    INTEGER NOT NULL,                -- identifies the try: a take-over has a new one
    released    INTEGER NOT NULL DEFAULT 0,      -- 1: the try has ended without an answer
    expires_at  INTEGER NOT NULL,
    status      INTEGER,                         -- of the answer; NULL: none yet
    body        TEXT
) STRICT;

CREATE INDEX requests_in_time ON requests (expires_at);

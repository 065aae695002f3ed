-- Access to the HTTP API.

-- API tokens.
CREATE TABLE rowlock.tokens (
    id           uuid PRIMARY KEY,
    digest       text NOT NULL UNIQUE,      -- SHA-256 in hex; the token itself is not stored
    name         text NOT NULL,
    role         text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    company_id   text,                      -- null: all companies
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,               -- null: never
    last_used_at timestamptz,
    revoked_at   timestamptz
) WITH (fillfactor = 50);

-- Requests with an idempotency key, and their answers.
CREATE TABLE rowlock.requests (
    key         text PRIMARY KEY,
    fingerprint text NOT NULL,              -- of the request's content
    job_id      uuid NOT NULL,              -- reserved for the job that the request enqueues
    begun_at    timestamptz NOT NULL,       -- identifies the try: a take-over has a new one
    released    boolean NOT NULL DEFAULT false, -- the try has ended without an answer
    expires_at  timestamptz NOT NULL,
    status      integer,                    -- of the answer; null: none yet
    body        text
);
CREATE INDEX requests_in_time ON rowlock.requests (expires_at);

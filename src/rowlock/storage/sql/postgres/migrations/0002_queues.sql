-- Paused queues, and limits per key.

-- Paused queues.
CREATE TABLE rowlock.queues (
    name      text PRIMARY KEY,
    paused_at timestamptz
);

-- Declared limits. The name is the part of a limit key before the first colon.
CREATE TABLE rowlock.limits (
    name        text PRIMARY KEY,
    concurrency integer,
    rate        integer,
    per_seconds double precision NOT NULL
);

-- Limit keys, or names of limits, of which no job starts for a while.
CREATE TABLE rowlock.key_pauses (
    key        text PRIMARY KEY,
    until      timestamptz NOT NULL
);

-- Starts that count against a rate. A job that is released before it started removes its row.
CREATE TABLE rowlock.key_starts (
    key        text NOT NULL,
    started_at timestamptz NOT NULL,        -- time of the claim
    job_id     uuid NOT NULL,
    lease      integer NOT NULL             -- of the claim: one job may be claimed twice at the same time
);
CREATE INDEX key_starts_window ON rowlock.key_starts (key, started_at, job_id);

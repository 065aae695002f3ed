-- Paused queues, wake-up hints, and limits per key.

-- Paused queues.
CREATE TABLE queues (
    name      TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Number of wake-up hints per queue. Waiting workers look at it for a change.
CREATE TABLE wakes (
    queue  TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL                      -- hints so far
) STRICT, WITHOUT ROWID;

-- Declared limits. The name is the part of a limit key before the first colon.
CREATE TABLE limits (
    name        TEXT NOT NULL PRIMARY KEY,
    concurrency INTEGER,
    rate        INTEGER,
    per_micros  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Limit keys, or names of limits, of which no job starts for a while.
CREATE TABLE key_pauses (
    key   TEXT    NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Starts that count against a rate. A job that is released before it started removes its row.
CREATE TABLE key_starts (
    key        TEXT    NOT NULL,
    started_at INTEGER NOT NULL,                 -- time of the claim
    seq        INTEGER NOT NULL,                 -- of the job
    lease      INTEGER NOT NULL,                 -- of the claim: one job may be claimed twice at the same time
    PRIMARY KEY (key, started_at, seq, lease)
) STRICT, WITHOUT ROWID;

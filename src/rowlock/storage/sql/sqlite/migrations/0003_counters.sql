-- Counters, updated with every state change, so that nothing counts jobs.

-- Number of jobs per queue and type, by status.
CREATE TABLE totals (
    queue     TEXT    NOT NULL,
    type      TEXT    NOT NULL,                  -- '': unknown
    alive     INTEGER NOT NULL,                  -- waiting or running
    delayed   INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    PRIMARY KEY (queue, type)
) STRICT, WITHOUT ROWID;

-- What happened in each minute of the last 25 hours.
CREATE TABLE minutes (
    minute    INTEGER NOT NULL,                  -- since 1970
    queue     TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    succeeded INTEGER NOT NULL, 
    failed    INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    retries   INTEGER NOT NULL,
    rescues   INTEGER NOT NULL,
    seconds   REAL    NOT NULL,
    PRIMARY KEY (minute, queue, type)
) STRICT, WITHOUT ROWID;

-- How long the oldest ready job of each queue had waited, by minute.
CREATE TABLE lags (
    minute  INTEGER PRIMARY KEY,                 -- since 1970
    seconds TEXT NOT NULL                        -- JSON object: seconds by queue
) STRICT;

-- Sums of what worker processes have measured.
CREATE TABLE measures (
    name   TEXT NOT NULL,
    labels TEXT NOT NULL,                        -- JSON object, keys sorted
    value  REAL NOT NULL,
    PRIMARY KEY (name, labels)
) STRICT, WITHOUT ROWID;

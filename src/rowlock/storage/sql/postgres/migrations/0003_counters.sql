-- Counters, so that nothing counts jobs. Each state change appends its difference to `counter_deltas` in its own transaction,
-- without waiting for others; maintenance compacts these rows into `totals` and `minutes`.

-- Differences that are not compacted yet.
CREATE TABLE rowlock.counter_deltas (
    at        timestamptz NOT NULL,
    queue     text NOT NULL,
    type      text NOT NULL,                -- '': unknown
    alive     integer NOT NULL DEFAULT 0,   -- waiting or running
    delayed   integer NOT NULL DEFAULT 0,
    succeeded integer NOT NULL DEFAULT 0,
    failed    integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    failures  integer NOT NULL DEFAULT 0,   -- failed attempts
    retries   integer NOT NULL DEFAULT 0,
    rescues   integer NOT NULL DEFAULT 0,
    seconds   double precision NOT NULL DEFAULT 0
);
ALTER TABLE rowlock.counter_deltas SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Number of jobs per queue and type, by status.
CREATE TABLE rowlock.totals (
    queue     text NOT NULL,
    type      text NOT NULL,
    alive     bigint NOT NULL,
    delayed   bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    PRIMARY KEY (queue, type)
) WITH (fillfactor = 50);

-- What happened in each minute of the last 25 hours.
CREATE TABLE rowlock.minutes (
    minute    timestamptz NOT NULL,
    queue     text NOT NULL,
    type      text NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    failures  bigint NOT NULL,
    retries   bigint NOT NULL,
    rescues   bigint NOT NULL,
    seconds   double precision NOT NULL,
    PRIMARY KEY (minute, queue, type)
) WITH (fillfactor = 50);

-- How long the oldest ready job of each queue had waited, by minute.
CREATE TABLE rowlock.lags (
    minute  timestamptz PRIMARY KEY,
    seconds json NOT NULL                   -- object: seconds by queue
);

-- Sums of what worker processes have measured.
CREATE TABLE rowlock.measures (
    name   text NOT NULL,
    labels text NOT NULL,                   -- JSON object, keys sorted
    value  double precision NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);

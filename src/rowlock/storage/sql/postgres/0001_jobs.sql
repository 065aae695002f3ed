-- The tables are the states: a job is in exactly one of ready, delayed, running, finished.
-- What never changes about it is in jobs (but for a payload that is taken over from a newer enqueue of the same key);
-- the others are narrow, and none of them is updated on the busy path.

-- Each call that enqueues takes a block of 4096 numbers (or several): one step of the sequence, not one per job.
CREATE SEQUENCE rowlock.job_seq AS bigint;

CREATE TABLE rowlock.jobs (
    id            uuid PRIMARY KEY,
    seq           bigint NOT NULL,          -- first come, first served, by the database's own count
    created_at    timestamptz NOT NULL,
    visibility_ms integer NOT NULL,
    priority      smallint NOT NULL,
    max_attempts  smallint NOT NULL,
    releases_key  boolean NOT NULL,         -- its unique key is freed when it is over
    queue         text NOT NULL,
    type          text NOT NULL,
    payload       text NOT NULL,            -- JSON, checked before it gets here
    company_id    text,
    limit_key     text,
    unique_key    text,
    trace         text,
    newest        uuid                      -- id of the newest enqueue that was answered with this job; null: its own
);
CREATE INDEX jobs_of_company ON rowlock.jobs (company_id, id) WHERE company_id IS NOT NULL;
-- Jobs arrive in order of time: a range index costs next to nothing and finds the new ones.
CREATE INDEX jobs_age ON rowlock.jobs USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE rowlock.ready (
    seq           bigint NOT NULL,
    job_id        uuid NOT NULL,
    lease         integer NOT NULL,         -- the last one taken
    priority      smallint NOT NULL,
    attempt       smallint NOT NULL,        -- how many are spent
    deaths        smallint NOT NULL,
    queue         text NOT NULL,
    limit_key     text,
    available_at  timestamptz,              -- null: since it was created
    updated_at    timestamptz,              -- null: not since it was created
    error         text
);
CREATE UNIQUE INDEX ready_order ON rowlock.ready (queue, priority, seq) WHERE limit_key IS NULL;
CREATE UNIQUE INDEX ready_keyed ON rowlock.ready (queue, limit_key, priority, seq) WHERE limit_key IS NOT NULL;
CREATE INDEX ready_again ON rowlock.ready (updated_at) WHERE updated_at IS NOT NULL;
-- The longest wait of a queue: its first row, or the first that was available later than it was created.
CREATE INDEX ready_since ON rowlock.ready (queue, available_at NULLS FIRST, seq);

CREATE TABLE rowlock.delayed (
    job_id        uuid PRIMARY KEY,
    seq           bigint NOT NULL,
    available_at  timestamptz NOT NULL,
    lease         integer NOT NULL,
    priority      smallint NOT NULL,
    attempt       smallint NOT NULL,
    deaths        smallint NOT NULL,
    queue         text NOT NULL,
    limit_key     text,
    updated_at    timestamptz,
    error         text
);
CREATE INDEX delayed_due ON rowlock.delayed (queue, available_at);
CREATE INDEX delayed_again ON rowlock.delayed (updated_at) WHERE updated_at IS NOT NULL;

CREATE TABLE rowlock.running (
    job_id           uuid PRIMARY KEY,
    owner            uuid NOT NULL,
    locked_at        timestamptz NOT NULL,
    lease            integer NOT NULL,
    visibility_ms    integer NOT NULL,
    attempt          smallint NOT NULL,
    deaths           smallint NOT NULL,
    releases_key     boolean NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    progress         smallint,
    available_at     timestamptz,           -- since when it could run; null: since it was created
    limit_key        text,
    message          text,
    updated_at       timestamptz            -- of the last report or request to cancel; null: since the claim, neither
);
CREATE INDEX running_keyed ON rowlock.running (limit_key) WHERE limit_key IS NOT NULL;

CREATE TABLE rowlock.finished (
    job_id       uuid PRIMARY KEY,
    available_at timestamptz,               -- since when its last attempt could run; null: since it was created
    started_at   timestamptz,               -- null: it never started
    finished_at  timestamptz NOT NULL,
    lease        integer NOT NULL,
    attempt      smallint NOT NULL,
    deaths       smallint NOT NULL,
    status       smallint NOT NULL,         -- 1 succeeded, 2 failed, 3 cancelled
    result       json,
    error        text
);
CREATE INDEX finished_dead ON rowlock.finished (status, job_id) WHERE status <> 1;
-- Likewise for those that are over, the old ones and the new.
CREATE INDEX finished_age ON rowlock.finished USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);

-- Rows come and go by the million here: vacuum by count, not by share, and at full speed.
ALTER TABLE rowlock.ready SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rowlock.delayed SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rowlock.running SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE rowlock.unique_keys (
    key        text PRIMARY KEY,
    job_id     uuid NOT NULL,
    expires_at timestamptz NOT NULL         -- infinity: never
);

CREATE TABLE rowlock.queues (
    name      text PRIMARY KEY,
    paused_at timestamptz
);

CREATE TABLE rowlock.limits (
    name        text PRIMARY KEY,
    concurrency integer,
    rate        integer,
    per_seconds double precision NOT NULL
);

CREATE TABLE rowlock.key_pauses (
    key        text PRIMARY KEY,
    until      timestamptz NOT NULL
);

-- The starts that count against a rate. A job that is given back unstarted takes its own row away again.
CREATE TABLE rowlock.key_starts (
    key        text NOT NULL,
    started_at timestamptz NOT NULL,        -- when it was claimed
    job_id     uuid NOT NULL,
    lease      integer NOT NULL             -- of the claim: one job may be claimed twice at the same time
);
CREATE INDEX key_starts_window ON rowlock.key_starts (key, started_at, job_id);

CREATE TABLE rowlock.workers (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    queues     text[] NOT NULL,
    types      text[] NOT NULL DEFAULT '{}',  -- that it has handlers for
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);

-- How many jobs there are, without counting them: every change adds its difference here, in its own transaction and
-- without waiting for anyone, and a chore folds these into `totals` (all time) and `minutes` (the last day).
CREATE TABLE rowlock.tallies (
    at        timestamptz NOT NULL,
    queue     text NOT NULL,
    type      text NOT NULL,                -- '': not known
    alive     integer NOT NULL DEFAULT 0,   -- waiting or running
    delayed   integer NOT NULL DEFAULT 0,
    succeeded integer NOT NULL DEFAULT 0,
    failed    integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    failures  integer NOT NULL DEFAULT 0,   -- attempts
    retries   integer NOT NULL DEFAULT 0,
    rescues   integer NOT NULL DEFAULT 0,
    seconds   double precision NOT NULL DEFAULT 0
);
ALTER TABLE rowlock.tallies SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

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

CREATE TABLE rowlock.minutes (
    minute    timestamptz NOT NULL,
    queue     text NOT NULL,
    type      text NOT NULL,
    succeeded bigint NOT NULL,              -- these and the following: what happened in it
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    failures  bigint NOT NULL,
    retries   bigint NOT NULL,
    rescues   bigint NOT NULL,
    seconds   double precision NOT NULL,
    PRIMARY KEY (minute, queue, type)
) WITH (fillfactor = 50);

-- Every failed attempt, written with the settlement that it caused.
CREATE TABLE rowlock.job_failures (
    id               uuid PRIMARY KEY,
    job_id           uuid NOT NULL,
    job_name         text NOT NULL,
    queue_name       text NOT NULL,
    company_id       text,
    payload          json NOT NULL,         -- redacted
    attempts         integer NOT NULL,      -- the number of the one that failed
    max_attempts     integer NOT NULL,
    is_final_attempt boolean NOT NULL,
    failed_reason    text NOT NULL,
    stack_trace      text,
    first_failed_at  timestamptz NOT NULL,
    resolved_at      timestamptz
);
CREATE INDEX job_failures_of_job ON rowlock.job_failures (job_id);
CREATE INDEX job_failures_in_time ON rowlock.job_failures (first_failed_at, id);
CREATE INDEX job_failures_of_name ON rowlock.job_failures (job_name, first_failed_at, id);
CREATE INDEX job_failures_of_company ON rowlock.job_failures (company_id, first_failed_at, id) WHERE company_id IS NOT NULL;

-- One table to look at, for people.
CREATE VIEW rowlock.all_jobs AS
SELECT j.id, j.type, j.queue,
       CASE WHEN f.job_id IS NOT NULL THEN CASE f.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END
            WHEN r.job_id IS NOT NULL THEN 'processing'
            ELSE 'queued' END AS status,
       j.payload::json AS payload, j.priority,
       coalesce(f.attempt, r.attempt, d.attempt, w.attempt, 0)::integer AS attempts,
       j.max_attempts,
       coalesce(f.deaths, r.deaths, d.deaths, w.deaths, 0)::integer AS deaths,
       coalesce(f.lease, r.lease, d.lease, w.lease, 0) AS lease,
       j.visibility_ms AS visibility_timeout_ms,
       j.created_at,
       coalesce(f.available_at, r.available_at, d.available_at, w.available_at, j.created_at) AS available_at,
       coalesce(f.finished_at, greatest(r.locked_at, k.seen_at), d.updated_at, w.updated_at, j.created_at) AS updated_at,
       greatest(r.locked_at, k.seen_at) AS locked_at,
       r.owner AS lock_owner,
       coalesce(f.started_at, r.locked_at) AS started_at,
       f.finished_at, r.progress, r.message, coalesce(r.cancel_requested, false) AS cancel_requested,
       f.result, coalesce(f.error, d.error, w.error) AS error,
       j.company_id, j.limit_key, j.unique_key, j.trace, j.seq
FROM rowlock.jobs j
LEFT JOIN rowlock.finished f ON f.job_id = j.id
LEFT JOIN rowlock.running r ON r.job_id = j.id
LEFT JOIN rowlock.workers k ON k.id = r.owner
LEFT JOIN rowlock.delayed d ON d.job_id = j.id
LEFT JOIN LATERAL (
    SELECT y.attempt, y.deaths, y.lease, y.error, y.available_at, y.updated_at FROM rowlock.ready y
    WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.limit_key IS NULL AND j.limit_key IS NULL
    UNION ALL
    SELECT y.attempt, y.deaths, y.lease, y.error, y.available_at, y.updated_at FROM rowlock.ready y
    WHERE y.queue = j.queue AND y.priority = j.priority AND y.seq = j.seq AND y.limit_key = j.limit_key
) w ON true;

-- The tables are the states: a job is in exactly one of ready, delayed, running and finished. Claim and settle insert
-- and delete narrow rows and update nothing.

-- Each enqueue call takes one or more blocks of 4096 numbers: one step of the sequence per block, not per job.
CREATE SEQUENCE rowlock.job_seq AS bigint;

-- What never changes about a job, except a payload that a newer enqueue of the same key has replaced.
CREATE TABLE rowlock.jobs (
    id            uuid PRIMARY KEY,
    seq           bigint NOT NULL,          -- first in, first out
    created_at    timestamptz NOT NULL,
    visibility_ms integer NOT NULL,
    priority      smallint NOT NULL,        -- lower first
    max_attempts  smallint NOT NULL,
    releases_key  boolean NOT NULL,         -- the end of the job frees its unique key
    queue         text NOT NULL,
    type          text NOT NULL,
    payload       text NOT NULL,            -- JSON, validated by the application
    company_id    text,
    limit_key     text,
    unique_key    text,
    trace         text,
    newest        uuid                      -- id of the newest enqueue that was answered with this job; null: its own
);
CREATE INDEX jobs_of_company ON rowlock.jobs (company_id, id) WHERE company_id IS NOT NULL;
-- Jobs arrive in order of time: a BRIN index is small and finds the new ones.
CREATE INDEX jobs_age ON rowlock.jobs USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

-- Jobs that can be claimed now.
CREATE TABLE rowlock.ready (
    seq           bigint NOT NULL,
    job_id        uuid NOT NULL,
    lease         integer NOT NULL,         -- number of the last lease; 0: none yet
    priority      smallint NOT NULL,
    attempt       smallint NOT NULL,        -- attempts spent
    deaths        smallint NOT NULL,        -- attempts that killed their process
    queue         text NOT NULL,
    limit_key     text,
    available_at  timestamptz,              -- null: since it was created
    updated_at    timestamptz,              -- null: not since it was created
    error         text                      -- of the last attempt
);
CREATE UNIQUE INDEX ready_order ON rowlock.ready (queue, priority, seq) WHERE limit_key IS NULL;
CREATE UNIQUE INDEX ready_keyed ON rowlock.ready (queue, limit_key, priority, seq) WHERE limit_key IS NOT NULL;
CREATE INDEX ready_again ON rowlock.ready (updated_at) WHERE updated_at IS NOT NULL;
-- The longest wait of a queue: its first row, or the first that became available after it was created.
CREATE INDEX ready_since ON rowlock.ready (queue, available_at NULLS FIRST, seq);

-- Jobs that become available later. A claim moves those that are due to `ready`.
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

-- Jobs under a lease.
CREATE TABLE rowlock.running (
    job_id           uuid PRIMARY KEY,
    owner            uuid NOT NULL,         -- the worker
    locked_at        timestamptz NOT NULL,
    lease            integer NOT NULL,
    visibility_ms    integer NOT NULL,
    attempt          smallint NOT NULL,
    deaths           smallint NOT NULL,
    releases_key     boolean NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    progress         smallint,
    available_at     timestamptz,           -- when this attempt became available; null: when the job was created
    limit_key        text,
    message          text,
    updated_at       timestamptz            -- of the last progress report or cancel request; null: neither since the claim
);
CREATE INDEX running_keyed ON rowlock.running (limit_key) WHERE limit_key IS NOT NULL;

-- Jobs that have ended.
CREATE TABLE rowlock.finished (
    job_id       uuid PRIMARY KEY,
    available_at timestamptz,               -- when the last attempt became available; null: when the job was created
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
CREATE INDEX finished_age ON rowlock.finished USING brin (finished_at) WITH (pages_per_range = 32, autosummarize = on);

-- Millions of rows come and go here: vacuum by number of rows, not by share, and at full speed.
ALTER TABLE rowlock.ready SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rowlock.delayed SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rowlock.running SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Keys that jobs hold, so that a second enqueue with the same key creates no second job.
CREATE TABLE rowlock.unique_keys (
    key        text PRIMARY KEY,
    job_id     uuid NOT NULL,
    expires_at timestamptz NOT NULL         -- infinity: never
);

-- Worker processes and their last heartbeat. A heartbeat renews every lease of its worker.
CREATE TABLE rowlock.workers (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    queues     text[] NOT NULL,
    types      text[] NOT NULL DEFAULT '{}',  -- job types that it has handlers for
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);

-- Every job in one row, for people and for reads of single jobs.
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

-- Schedules and their runs.

-- Declared schedules, with the time of the next run.
CREATE TABLE rowlock.schedules (
    name      text PRIMARY KEY,
    spec      text NOT NULL,
    next_at   timestamptz NOT NULL,
    last_tick timestamptz,
    paused_at timestamptz
);

-- One row per schedule and time: the key keeps two machines from enqueuing the same run.
CREATE TABLE rowlock.schedule_runs (
    name        text NOT NULL,
    tick        timestamptz NOT NULL,
    job_id      uuid,                       -- null: missed
    enqueued_at timestamptz NOT NULL,
    status      text NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    error       text,
    PRIMARY KEY (name, tick)
);
CREATE INDEX schedule_runs_in_time ON rowlock.schedule_runs (tick, name);
CREATE INDEX schedule_runs_open ON rowlock.schedule_runs (job_id) WHERE ended_at IS NULL;
CREATE INDEX schedule_runs_ended ON rowlock.schedule_runs (ended_at) WHERE ended_at IS NOT NULL;

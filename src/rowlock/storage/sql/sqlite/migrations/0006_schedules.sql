-- Schedules and their runs.

-- Declared schedules, with the time of the next run.
CREATE TABLE schedules (
    name      TEXT    NOT NULL PRIMARY KEY,
    spec      TEXT    NOT NULL,
    next_at   INTEGER NOT NULL,
    last_tick INTEGER,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

-- One row per schedule and time: the key keeps two processes from enqueuing the same run.
CREATE TABLE schedule_runs (
    name        TEXT    NOT NULL,
    tick        INTEGER NOT NULL,
    job_id      TEXT,                            -- NULL: missed
    enqueued_at INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    error       TEXT,
    PRIMARY KEY (name, tick)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_runs_in_time ON schedule_runs (tick, name);
CREATE INDEX schedule_runs_open ON schedule_runs (job_id) WHERE ended_at IS NULL;
CREATE INDEX schedule_runs_ended ON schedule_runs (ended_at) WHERE ended_at IS NOT NULL;

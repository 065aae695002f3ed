-- Outbound calls: limits for the whole fleet, and the order of calls per subject.

-- One row per limit. Taking a permit locks it.
CREATE TABLE rowlock.call_keys (
    key         text PRIMARY KEY,
    rests_until timestamptz                 -- no call before this time
) WITH (fillfactor = 50);

-- Permits, one row per call and limit.
CREATE TABLE rowlock.call_permits (
    id      text NOT NULL,                  -- of the call
    key     text NOT NULL,
    free_at timestamptz NOT NULL,           -- the call counts until then
    seconds double precision,               -- how long it counts after its end; null: it has ended
    step    double precision NOT NULL,      -- 0, or seconds: after its end the call goes into call_sums
    PRIMARY KEY (id, key)
);
CREATE INDEX call_permits_in_time ON rowlock.call_permits (key, free_at);

-- Ended calls of limits with long windows, summed by step.
CREATE TABLE rowlock.call_sums (
    key     text NOT NULL,
    free_at timestamptz NOT NULL,           -- the calls count until then
    calls   integer NOT NULL,
    PRIMARY KEY (key, free_at)
) WITH (fillfactor = 50);

-- Subjects (contacts, deals, ...): which job holds one, and what was written to it last.
CREATE TABLE rowlock.subjects (
    kind       text NOT NULL,
    key        text NOT NULL,
    holder     text,                        -- null: free
    held_until timestamptz NOT NULL,
    touched_at timestamptz NOT NULL,
    marks      jsonb NOT NULL DEFAULT '{}', -- by property, the last write
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 70);
CREATE INDEX subjects_in_time ON rowlock.subjects (touched_at);

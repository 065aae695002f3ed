-- Outbound calls: limits for the whole fleet, and the order of calls per subject.

-- Limits of which no call may be made for a while.
CREATE TABLE call_keys (
    key         TEXT    NOT NULL PRIMARY KEY,
    rests_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Permits, one row per call and limit.
CREATE TABLE call_permits (
    id      TEXT    NOT NULL,                    -- of the call
    key     TEXT    NOT NULL,
    free_at INTEGER NOT NULL,                    -- the call counts until then
    seconds INTEGER,                             -- microseconds that it counts after its end; NULL: it has ended
    step    INTEGER NOT NULL,                    -- 0, or microseconds: after its end the call goes into call_sums
    PRIMARY KEY (id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX call_permits_in_time ON call_permits (key, free_at);

-- Ended calls of limits with long windows, summed by step.
CREATE TABLE call_sums (
    key     TEXT    NOT NULL,
    free_at INTEGER NOT NULL,                    -- the calls count until then
    calls   INTEGER NOT NULL,
    PRIMARY KEY (key, free_at)
) STRICT, WITHOUT ROWID;

-- Subjects (contacts, deals, ...): which job holds one, and what was written to it last.
CREATE TABLE subjects (
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    holder     TEXT,                             -- NULL: free
    held_until INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    marks      TEXT    NOT NULL DEFAULT '{}',    -- JSON: by property, the last write
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX subjects_in_time ON subjects (touched_at);

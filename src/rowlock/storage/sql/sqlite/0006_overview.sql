-- What operators see at a glance: how long jobs had waited, minute by minute, and where and when a failed attempt ran.

CREATE TABLE lags (
    minute  INTEGER PRIMARY KEY,                 -- since 1970
    seconds TEXT NOT NULL                        -- JSON: by queue, how long its oldest ready job had waited
) STRICT;

ALTER TABLE job_failures ADD COLUMN started_at INTEGER; -- NULL: not known
ALTER TABLE job_failures ADD COLUMN owner TEXT;         -- the worker; NULL: not known

-- Identical failures that one record stands for, and when the last of them was; NULL: there was only the first.
ALTER TABLE job_failures ADD COLUMN occurrences INTEGER NOT NULL DEFAULT 1;
ALTER TABLE job_failures ADD COLUMN last_failed_at INTEGER;

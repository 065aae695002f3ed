-- name: now
-- Not unixepoch('subsec'): the library of the sqlite3 module may be too old for it, and both must return the same time.
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000

-- name: has_migrations
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations')

-- name: create_migrations
CREATE TABLE migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    checksum   TEXT    NOT NULL,
    oldest     INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT

-- name: applied
SELECT number, checksum, oldest FROM migrations

-- name: record_migration
INSERT INTO migrations (number, name, checksum, oldest, applied_at) VALUES (:number, :name, :checksum, :oldest, :now)

-- name: wake
INSERT INTO wakes (queue, number) VALUES (:queue, 1) ON CONFLICT (queue) DO UPDATE SET number = number + 1

-- name: wakes
SELECT queue, number FROM wakes

-- name: cancel_requests
SELECT job_id FROM running WHERE cancel_requested = 1

-- name: end_attempts
-- The guard of every settlement: this job, this lease, this owner.
DELETE FROM running
WHERE job_id IN (SELECT value FROM carray(?)) AND lease = ? AND owner = ?
RETURNING job_id, seq, lease, attempt, deaths, releases_key, cancel_requested, limit_key, locked_at, available_at

-- name: remove_start
DELETE FROM key_starts WHERE key = ? AND started_at = ? AND seq = ? AND lease = ?

-- name: finish
INSERT INTO finished (seq, outcome, lease, attempt, deaths, available_at, started_at, finished_at, result, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: release_key
DELETE FROM unique_keys
WHERE job_id = :job_id AND key = (SELECT unique_key FROM jobs WHERE seq = :seq AND releases_key = 1)

-- name: wait_ready
INSERT INTO ready (queue, limit_key, priority, seq, lease, attempt, deaths, available_at, queued_at, error)
SELECT queue, limit_key, priority, seq, :lease, :attempt, :deaths, :available_at, :now, :error
FROM jobs WHERE seq = :seq

-- name: wait_delayed
INSERT INTO delayed (queue, limit_key, priority, seq, lease, attempt, deaths, available_at, queued_at, error)
SELECT queue, limit_key, priority, seq, :lease, :attempt, :deaths, :available_at, :now, :error
FROM jobs WHERE seq = :seq

-- name: report_progress
UPDATE running SET progress = ?, message = ?, changed_at = ?
WHERE job_id = ? AND lease = ? AND owner = ?
RETURNING job_id, lease

-- name: beat
INSERT INTO workers (id, name, queues, types, started_at, seen_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, queues = excluded.queues, seen_at = excluded.seen_at,
    types = CASE WHEN excluded.types <> '[]' THEN excluded.types ELSE types END

-- name: held
SELECT x.job_id, x.lease, x.owner, x.attempt, x.max_attempts, x.deaths, x.cancel_requested, j.type, j.queue
FROM running x
CROSS JOIN jobs j ON j.seq = x.seq
WHERE x.owner IN (SELECT value FROM json_each(:owners))
ORDER BY x.seq

-- name: shortest_lease
SELECT min(visibility_ms) FROM running WHERE owner IN (SELECT value FROM json_each(:owners))

-- name: retire
DELETE FROM workers WHERE id = :owner

-- name: expired
SELECT x.job_id, j.type, j.queue, x.owner, x.attempt, x.max_attempts, x.lease, x.locked_at, x.cancel_requested, j.payload
FROM running x
LEFT JOIN workers w ON w.id = x.owner
JOIN jobs j ON j.seq = x.seq
WHERE max(x.locked_at, coalesce(w.seen_at, 0)) + x.visibility_ms * 1000 < :now
ORDER BY x.seq
LIMIT :limit

-- name: look
SELECT EXISTS (SELECT 1 FROM queues WHERE name = :queue) AS paused,
       EXISTS (SELECT 1 FROM delayed WHERE queue = :queue AND available_at <= :now) AS due

-- name: promote
-- By priority, not by time: a bounded promotion must not leave jobs behind that are more urgent than those it takes.
INSERT INTO ready (queue, limit_key, priority, seq, lease, attempt, deaths, available_at, queued_at, error)
SELECT queue, limit_key, priority, seq, lease, attempt, deaths, available_at, queued_at, error
FROM delayed
WHERE queue = :queue AND available_at <= :now
ORDER BY priority, seq
LIMIT :at_most

-- name: remove_promoted
DELETE FROM delayed
WHERE queue = :queue AND available_at <= :now AND EXISTS (
    SELECT 1 FROM ready r
    WHERE r.queue = delayed.queue AND r.limit_key = delayed.limit_key
      AND r.priority = delayed.priority AND r.seq = delayed.seq
)
RETURNING seq

-- name: has_keyed
SELECT EXISTS (SELECT 1 FROM ready WHERE queue = :queue AND limit_key > '')

-- name: first_unkeyed
SELECT r.seq, j.id, r.lease + 1, r.attempt + 1, j.max_attempts, r.deaths, r.priority, j.type, j.payload,
    j.company_id, NULL, j.trace
FROM ready r
CROSS JOIN jobs j ON j.seq = r.seq
WHERE r.queue = ? AND r.limit_key = ''
ORDER BY r.priority, r.seq
LIMIT ?

-- name: start_unkeyed
-- Up to the last job of the batch: the rows that first_unkeyed returned, since both run under the write lock.
INSERT INTO running (
    job_id, seq, owner, locked_at, lease, attempt, max_attempts, deaths, visibility_ms, releases_key, limit_key,
    available_at
)
SELECT j.id, r.seq, :owner, :now, r.lease + 1, r.attempt + 1, j.max_attempts, r.deaths, j.visibility_ms,
    j.releases_key, '', r.available_at
FROM ready r
CROSS JOIN jobs j ON j.seq = r.seq
WHERE r.queue = :queue AND r.limit_key = '' AND (r.priority, r.seq) <= (:priority, :seq)

-- name: remove_unkeyed
DELETE FROM ready WHERE queue = :queue AND limit_key = '' AND (priority, seq) <= (:priority, :seq)

-- name: keys_with_room
-- Steps from key to key by the index, without reading all jobs of a key; the next claim continues after :after.
WITH RECURSIVE keys (key) AS (
    SELECT min(limit_key) FROM ready WHERE queue = :queue AND limit_key > :after
    UNION ALL
    SELECT (SELECT min(limit_key) FROM ready WHERE queue = :queue AND limit_key > keys.key)
    FROM keys WHERE key IS NOT NULL
    LIMIT :at_most
), named (key, name) AS (
    SELECT key, substr(key, 1, instr(key || ':', ':') - 1) FROM keys WHERE key IS NOT NULL
)
SELECT k.key,
    CASE
        WHEN EXISTS (SELECT 1 FROM key_pauses p WHERE p.key IN (k.key, k.name) AND p.until > :now) THEN 0
        ELSE min(
            :limit,
            coalesce(l.concurrency - (SELECT count(*) FROM running x WHERE x.limit_key = k.key AND x.limit_key <> ''), :limit),
            coalesce(l.rate - (
                SELECT count(*) FROM key_starts s WHERE s.key = k.key AND s.started_at > :now - l.per_micros
            ), :limit)
        )
    END AS room,
    CASE WHEN l.rate IS NOT NULL THEN :now - l.per_micros END AS window_start
FROM named k
LEFT JOIN limits l ON l.name = k.name

-- name: waiting_of_key
SELECT priority, seq, limit_key
FROM ready
WHERE queue = ? AND limit_key = ? AND (priority, seq) > (?, ?)
ORDER BY priority, seq
LIMIT ?

-- name: read_one
SELECT r.seq, j.id, r.lease + 1, r.attempt + 1, j.max_attempts, r.deaths, r.priority, j.type, j.payload,
    j.company_id, nullif(r.limit_key, ''), j.trace
FROM ready r
CROSS JOIN jobs j ON j.seq = r.seq
WHERE r.queue = ? AND r.limit_key = ? AND r.priority = ? AND r.seq = ?

-- name: start_one
INSERT INTO running (
    job_id, seq, owner, locked_at, lease, attempt, max_attempts, deaths, visibility_ms, releases_key, limit_key,
    available_at
)
SELECT j.id, r.seq, ?, ?, r.lease + 1, r.attempt + 1, j.max_attempts, r.deaths, j.visibility_ms,
    j.releases_key, r.limit_key, r.available_at
FROM ready r
CROSS JOIN jobs j ON j.seq = r.seq
WHERE r.queue = ? AND r.limit_key = ? AND r.priority = ? AND r.seq = ?

-- name: remove_one
DELETE FROM ready WHERE queue = ? AND limit_key = ? AND priority = ? AND seq = ?

-- name: forget_starts
DELETE FROM key_starts WHERE key = ? AND started_at <= ?

-- name: add_start
INSERT INTO key_starts (key, started_at, seq, lease) VALUES (?, ?, ?, ?)

-- name: peek
SELECT q.value,
    p.name IS NULL AND (
        EXISTS (SELECT 1 FROM ready WHERE queue = q.value)
        OR EXISTS (SELECT 1 FROM delayed WHERE queue = q.value AND available_at <= :now)
    ),
    CASE WHEN p.name IS NULL THEN (SELECT min(available_at) FROM delayed WHERE queue = q.value) END
FROM json_each(:queues) q
LEFT JOIN queues p ON p.name = q.value

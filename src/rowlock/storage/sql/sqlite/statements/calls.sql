-- name: call_running
SELECT seconds IS NOT NULL FROM call_permits WHERE id = :id

-- name: hold_call
UPDATE call_permits SET free_at = :now + :hold + seconds WHERE id = :id

-- name: call_free_at
-- When the next call may begin; NULL: now. A call that has not ended is assumed to end now: its permit cannot be free
-- sooner.
WITH counted (free_at, calls) AS (
    SELECT min(free_at, coalesce(:now + seconds, free_at)), 1 FROM call_permits WHERE key = :key AND free_at > :now
    UNION ALL
    SELECT free_at, calls FROM call_sums WHERE key = :key AND free_at > :now
), latest (free_at, together) AS (
    SELECT free_at, sum(calls) OVER (ORDER BY free_at DESC) FROM counted
)
SELECT max(free_at) FROM (
    SELECT free_at FROM latest WHERE together >= :count
    UNION ALL
    SELECT rests_until FROM call_keys WHERE key = :key AND rests_until > :now)

-- name: take_call
INSERT INTO call_permits (id, key, free_at, seconds, step) VALUES (:id, :key, :now + :hold + :seconds, :seconds, :step)

-- name: end_call
UPDATE call_permits SET free_at = :now + seconds, seconds = NULL WHERE id = :id AND seconds IS NOT NULL AND step = 0

-- name: drop_call
DELETE FROM call_permits WHERE id = :id AND seconds IS NOT NULL RETURNING key, seconds, step

-- name: sum_call
INSERT INTO call_sums (key, free_at, calls) VALUES (?, ?, 1) ON CONFLICT (key, free_at) DO UPDATE SET calls = calls + 1

-- name: rest_calls
INSERT INTO call_keys (key, rests_until) VALUES (:key, :until)
ON CONFLICT (key) DO UPDATE SET rests_until = max(rests_until, excluded.rests_until)

-- name: call_budget
SELECT (SELECT count(*) FROM call_permits WHERE key = :key AND free_at > :now)
       + (SELECT coalesce(sum(calls), 0) FROM call_sums WHERE key = :key AND free_at > :now),
    (SELECT rests_until FROM call_keys WHERE key = :key AND rests_until > :now)

-- name: forget_calls
DELETE FROM call_permits WHERE key = :key AND free_at <= :now

-- name: hold_subject
INSERT INTO subjects (kind, key, holder, held_until, touched_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (kind, key) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE holder IS NULL OR holder = excluded.holder OR held_until <= excluded.touched_at
RETURNING key, marks

-- name: held_subject
SELECT key, marks FROM subjects WHERE kind = ? AND key = ? AND holder = ?

-- name: mark_subject
UPDATE subjects SET marks = ?, holder = NULL, touched_at = ? WHERE kind = ? AND key = ?

-- name: free_subject
UPDATE subjects SET holder = NULL, touched_at = ? WHERE kind = ? AND key = ? AND holder = ?

-- name: prune_calls
DELETE FROM call_permits WHERE (id, key) IN (SELECT id, key FROM call_permits WHERE free_at <= :now LIMIT :limit)
RETURNING 1

-- name: prune_call_sums
DELETE FROM call_sums WHERE (key, free_at) IN (SELECT key, free_at FROM call_sums WHERE free_at <= :now LIMIT :limit)
RETURNING 1

-- name: prune_subjects
DELETE FROM subjects WHERE (kind, key) IN (
    SELECT kind, key FROM subjects
    WHERE touched_at < :before AND (holder IS NULL OR held_until <= :now) ORDER BY touched_at LIMIT :limit)
RETURNING 1

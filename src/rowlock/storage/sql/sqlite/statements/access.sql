-- name: add_token
INSERT INTO tokens (id, digest, name, role, company_id, created_at, expires_at)
VALUES (:id, :digest, :name, :role, :company_id, :now, :expires_at)
RETURNING id, name, role, company_id, created_at, expires_at, last_used_at, revoked_at

-- name: token
SELECT id, name, role, company_id, created_at, expires_at, last_used_at, revoked_at FROM tokens
WHERE digest = :digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)

-- name: tokens
SELECT id, name, role, company_id, created_at, expires_at, last_used_at, revoked_at FROM tokens ORDER BY created_at, id

-- name: revoke_token
UPDATE tokens SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id RETURNING id

-- name: touch_token
UPDATE tokens SET last_used_at = ? WHERE id = ?

-- name: request
SELECT fingerprint, job_id, begun_at, released, status, body FROM requests WHERE key = :key AND expires_at > :now

-- name: begin_request
INSERT INTO requests (key, fingerprint, job_id, begun_at, expires_at)
VALUES (:key, :fingerprint, :job_id, :now, :expires_at)
ON CONFLICT (key) DO UPDATE SET
    fingerprint = excluded.fingerprint, job_id = excluded.job_id,
    begun_at = max(excluded.begun_at, requests.begun_at + 1), released = 0,
    expires_at = excluded.expires_at, status = NULL, body = NULL
RETURNING begun_at

-- name: end_request
UPDATE requests SET status = :status, body = :body WHERE key = :key AND begun_at = :begun_at AND status IS NULL

-- name: release_request
UPDATE requests SET released = 1 WHERE key = :key AND begun_at = :begun_at AND status IS NULL

-- name: prune_requests
DELETE FROM requests WHERE key IN (
    SELECT key FROM requests WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
RETURNING 1

-- name: prune_tokens
DELETE FROM tokens WHERE id IN (
    SELECT id FROM tokens
    WHERE min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) < :before
    LIMIT :limit)
RETURNING 1

-- name: seq_ends
SELECT (SELECT min(seq) FROM jobs), (SELECT max(seq) FROM jobs)

-- name: created_from
SELECT created_at FROM jobs WHERE seq >= :seq ORDER BY seq LIMIT 1

-- name: changes
-- A job is in one table, which records when the job arrived there, so each job is found once, in its present state.
WITH changed (seq, at, status, attempt, lease, progress, message, error) AS (
    SELECT * FROM (
        SELECT seq, finished_at, 'succeeded', attempt, lease, NULL, NULL, error FROM finished
        WHERE outcome = 1 AND finished_at >= :since ORDER BY finished_at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT seq, finished_at, 'failed', attempt, lease, NULL, NULL, error FROM finished
        WHERE outcome = 2 AND finished_at >= :since ORDER BY finished_at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT seq, finished_at, 'cancelled', attempt, lease, NULL, NULL, error FROM finished
        WHERE outcome = 3 AND finished_at >= :since ORDER BY finished_at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT seq, max(locked_at, coalesce(changed_at, 0)) AS at, 'processing', attempt, lease, progress, message, NULL
        FROM running WHERE max(locked_at, coalesce(changed_at, 0)) >= :since ORDER BY at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT seq, queued_at, 'queued', attempt, lease, NULL, NULL, error FROM ready
        WHERE queued_at >= :since ORDER BY queued_at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT seq, queued_at, 'queued', attempt, lease, NULL, NULL, error FROM delayed
        WHERE queued_at >= :since ORDER BY queued_at, seq LIMIT :limit)
    UNION ALL
    SELECT * FROM (
        SELECT j.seq, j.created_at, 'queued', 0, 0, NULL, NULL, NULL FROM jobs j
        WHERE j.seq >= :first AND j.created_at >= :since AND (
            EXISTS (
                SELECT 1 FROM ready r
                WHERE r.queue = j.queue AND r.limit_key = j.limit_key AND r.priority = j.priority AND r.seq = j.seq
                  AND r.queued_at IS NULL)
            OR EXISTS (SELECT 1 FROM delayed d WHERE d.seq = j.seq AND d.queued_at IS NULL))
        ORDER BY j.created_at, j.seq LIMIT :limit)
)
SELECT j.id, j.type, j.queue, c.status, c.attempt, j.max_attempts, c.lease, c.progress, c.message, c.error, j.company_id, c.at
FROM (SELECT * FROM changed ORDER BY at, seq LIMIT :limit) c
CROSS JOIN jobs j ON j.seq = c.seq
ORDER BY c.at, c.seq

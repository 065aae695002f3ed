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

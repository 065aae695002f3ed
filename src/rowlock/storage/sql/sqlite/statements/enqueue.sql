-- name: take_key
INSERT INTO unique_keys (key, job_id, expires_at) VALUES (:key, :job_id, :expires_at)
ON CONFLICT (key) DO UPDATE SET job_id = excluded.job_id, expires_at = excluded.expires_at
WHERE unique_keys.expires_at <= :now
RETURNING job_id

-- name: key_holder
SELECT k.job_id, EXISTS (SELECT 1 FROM jobs j WHERE j.id = k.job_id) FROM unique_keys k WHERE k.key = :key

-- name: add_job
INSERT INTO jobs (
    id, type, queue, priority, max_attempts, visibility_ms, created_at, available_at,
    company_id, limit_key, unique_key, releases_key, trace, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: take_over
UPDATE jobs SET newest = :newest, payload = :payload
WHERE id = :holder AND releases_key = 1 AND coalesce(newest, id) < :newest

-- name: newest
SELECT newest, payload FROM jobs WHERE id = :id AND newest IS NOT NULL

-- name: free_newest_key
DELETE FROM unique_keys
WHERE job_id = :id AND key = (
    SELECT unique_key FROM jobs WHERE id = :id AND releases_key = 1 AND coalesce(newest, id) <= :newest)

-- name: last_seq
SELECT last_insert_rowid()

-- name: add_ready
INSERT INTO ready (queue, limit_key, priority, seq, lease, attempt, deaths, available_at)
SELECT queue, limit_key, priority, seq, 0, 0, 0, coalesce(available_at, created_at)
FROM jobs
WHERE seq BETWEEN :first AND :last AND coalesce(available_at, created_at) <= created_at

-- name: add_delayed
INSERT INTO delayed (seq, queue, available_at, priority, limit_key, lease, attempt, deaths)
SELECT seq, queue, available_at, priority, limit_key, 0, 0, 0
FROM jobs
WHERE seq BETWEEN :first AND :last AND available_at > created_at

-- name: depth
SELECT count(*) FROM (
    SELECT 1 FROM ready WHERE queue = :queue
    UNION ALL
    SELECT 1 FROM delayed WHERE queue = :queue
    LIMIT :at_most
)

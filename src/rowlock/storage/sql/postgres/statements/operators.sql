-- name: get
SELECT * FROM rowlock.all_jobs WHERE id = $1::uuid

-- name: records
SELECT * FROM rowlock.all_jobs WHERE id = ANY ($1::uuid[])

-- name: cancel
SELECT rowlock.cancel($1::uuid, $2::timestamptz)

-- name: retry
SELECT id, retried FROM rowlock.retry($1::uuid[], $2::timestamptz)

-- name: discard
WITH doomed AS (
    SELECT f.job_id FROM rowlock.finished f WHERE f.job_id = ANY ($1::uuid[]) AND f.status <> 1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), keys AS (
    DELETE FROM rowlock.unique_keys k USING rowlock.jobs j, doomed d
    WHERE j.id = d.job_id AND k.key = j.unique_key AND k.job_id = j.id
)
DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.id::text

-- name: pause
INSERT INTO rowlock.queues AS q (name, paused_at) VALUES ($1, coalesce($2::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, excluded.paused_at)

-- name: resume
DELETE FROM rowlock.queues WHERE name = $1

-- name: queues
WITH clock AS (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), due AS (
    SELECT d.queue, d.job_id, d.seq, d.available_at, d.available_at <= c.now AS due FROM rowlock.delayed d, clock c
), counted AS (
    SELECT queue, count(*) AS ready, 0 AS delayed, 0 AS processing, min(seq) AS oldest FROM rowlock.ready GROUP BY queue
    UNION ALL
    SELECT queue, count(*) FILTER (WHERE due), count(*) FILTER (WHERE NOT due), 0, min(seq) FILTER (WHERE due) FROM due GROUP BY queue
    UNION ALL
    SELECT j.queue, 0, 0, count(*), NULL FROM rowlock.running r JOIN rowlock.jobs j ON j.id = r.job_id GROUP BY j.queue
    UNION ALL
    SELECT name, 0, 0, 0, NULL FROM rowlock.queues WHERE paused_at IS NOT NULL
), summed AS (
    SELECT queue, sum(ready) AS ready, sum(delayed) AS delayed, sum(processing) AS processing, min(oldest) AS oldest
    FROM counted GROUP BY queue
)
SELECT s.queue, q.paused_at IS NOT NULL, s.ready::bigint, s.delayed::bigint, s.processing::bigint,
       extract(epoch FROM c.now - (
           SELECT coalesce(w.available_at, j.created_at)
           FROM (SELECT job_id, available_at FROM rowlock.ready WHERE seq = s.oldest
                 UNION ALL SELECT job_id, available_at FROM due WHERE seq = s.oldest) w
           JOIN rowlock.jobs j ON j.id = w.job_id))::double precision
FROM clock c, summed s LEFT JOIN rowlock.queues q ON q.name = s.queue ORDER BY s.queue

-- name: counts
SELECT 'queued', (SELECT count(*) FROM rowlock.ready) + (SELECT count(*) FROM rowlock.delayed)
UNION ALL SELECT 'processing', count(*) FROM rowlock.running
UNION ALL SELECT CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END, count(*)
FROM rowlock.finished GROUP BY status

-- name: workers
SELECT id::text, name, queues, started_at, seen_at FROM rowlock.workers ORDER BY started_at, id

-- name: prune_old
WITH doomed AS (
    SELECT job_id FROM rowlock.finished
    WHERE status = $1 AND finished_at < coalesce($4::timestamptz, clock_timestamp()) - $2::double precision * interval '1 day'
    ORDER BY finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), removed AS (
    DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.id
)
SELECT count(*) FROM removed

-- name: prune_beyond
WITH oldest_kept AS (
    SELECT job_id FROM rowlock.finished WHERE status = $1 ORDER BY job_id DESC OFFSET $2 LIMIT 1
), doomed AS (
    SELECT job_id FROM rowlock.finished
    WHERE status = $1 AND job_id <= (SELECT job_id FROM oldest_kept) ORDER BY job_id LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), removed AS (
    DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.id
)
SELECT count(*) FROM removed

-- name: prune_keys
DELETE FROM rowlock.unique_keys WHERE key IN (
    SELECT key FROM rowlock.unique_keys WHERE expires_at <= coalesce($2::timestamptz, clock_timestamp()) LIMIT $1)

-- name: forget_pauses
DELETE FROM rowlock.key_pauses WHERE until <= coalesce($1::timestamptz, clock_timestamp())

-- name: forget_starts
DELETE FROM rowlock.key_starts
WHERE started_at <= coalesce($1::timestamptz, clock_timestamp())
                    - coalesce((SELECT max(per_seconds) FROM rowlock.limits), 0) * interval '1 second'

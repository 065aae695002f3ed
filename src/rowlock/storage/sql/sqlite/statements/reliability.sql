-- name: has_unnotified
SELECT EXISTS (SELECT 1 FROM job_failures WHERE is_final_attempt = 1 AND notice_id IS NULL)

-- name: assign_notification
UPDATE job_failures SET notice_id = :notice_id WHERE id IN (
    SELECT id FROM job_failures WHERE is_final_attempt = 1 AND notice_id IS NULL ORDER BY first_failed_at LIMIT :limit)

-- name: said_deaths
SELECT job_name, queue_name, count(*), min(first_failed_at), max(first_failed_at), max(attempts)
FROM job_failures WHERE notice_id = :notice_id
GROUP BY job_name, queue_name
ORDER BY count(*) DESC, job_name, queue_name

-- name: last_notified
SELECT job_id, failed_reason FROM job_failures
WHERE notice_id = :notice_id AND job_name = :job_name AND queue_name = :queue_name
ORDER BY first_failed_at DESC, id DESC
LIMIT 3

-- name: add_measure
INSERT INTO measures (name, labels, value) VALUES (?, ?, ?)
ON CONFLICT (name, labels) DO UPDATE SET value = value + excluded.value

-- name: measures
SELECT name, labels, value FROM measures ORDER BY name, labels

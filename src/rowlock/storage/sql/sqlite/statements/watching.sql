-- name: retrying
-- The plus keeps the planner on the index of jobs that wait again, which are few.
SELECT (SELECT count(*) FROM ready
        WHERE queued_at IS NOT NULL AND attempt > 0 AND +queue IN (SELECT value FROM json_each(:queues)))
    + (SELECT count(*) FROM delayed WHERE attempt > 0 AND queue IN (SELECT value FROM json_each(:queues)))

-- name: mean_completed
SELECT avg((f.finished_at - f.started_at) / 1e3) FROM finished f CROSS JOIN jobs j ON j.seq = f.seq
WHERE f.outcome = 1 AND f.finished_at > :since AND j.queue IN (SELECT value FROM json_each(:queues))

-- name: counts_of_company
SELECT count(*) FILTER (WHERE status = 'queued' AND attempts = 0), count(*) FILTER (WHERE status = 'processing'),
    count(*) FILTER (WHERE status = 'queued' AND attempts > 0), count(*) FILTER (WHERE status = 'failed'),
    count(*) FILTER (WHERE status = 'succeeded' AND finished_at > :since),
    avg((finished_at - started_at) / 1e3) FILTER (WHERE status = 'succeeded' AND finished_at > :since),
    (:now - min(available_at) FILTER (WHERE status = 'queued' AND available_at <= :now)) / 1e6
FROM job_records
WHERE company_id = :company_id AND queue IN (SELECT value FROM json_each(:queues))

-- name: failed_lately
SELECT job_id, first_failed_at FROM job_failures WHERE queue_name = :queue
ORDER BY first_failed_at DESC, id DESC
LIMIT :looked_at

-- name: failed_lately_of_company
SELECT job_id, first_failed_at FROM job_failures
WHERE company_id = :company_id AND queue_name IN (SELECT value FROM json_each(:queues))
ORDER BY first_failed_at DESC, id DESC
LIMIT :looked_at

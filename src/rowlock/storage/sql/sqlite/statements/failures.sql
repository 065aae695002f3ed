-- name: record_failure
INSERT INTO job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
    is_final_attempt, failed_reason, stack_trace, first_failed_at, started_at, owner)
SELECT :id, j.id, j.type, j.queue, j.company_id, :payload, :attempt, j.max_attempts, :final, :reason, :stack, :now,
    :started_at, :owner
FROM jobs j WHERE j.seq = :seq
ON CONFLICT (id) DO UPDATE SET occurrences = occurrences + 1, last_failed_at = excluded.first_failed_at

-- name: add_failure
INSERT INTO job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
    is_final_attempt, failed_reason, stack_trace, first_failed_at, started_at, owner)
VALUES (:id, :job_id, :job_name, :queue_name, :company_id, :payload, :attempts, :max_attempts,
    :is_final_attempt, :failed_reason, :stack_trace, :first_failed_at, :started_at, :owner)
ON CONFLICT DO NOTHING

-- name: resolve_failures
UPDATE job_failures SET resolved_at = :now
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND resolved_at IS NULL

-- name: failures
SELECT id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts, is_final_attempt,
    failed_reason, stack_trace, first_failed_at, resolved_at, started_at, owner,
    occurrences, last_failed_at
FROM job_failures
WHERE (:company_id IS NULL OR company_id = :company_id) AND (:job_name IS NULL OR job_name = :job_name)
  AND (:job_id IS NULL OR job_id = :job_id) AND (:final IS NULL OR is_final_attempt = :final)
  AND (NOT :unresolved OR resolved_at IS NULL)
  AND (:before IS NULL OR (first_failed_at, id) < (:before, :last))
ORDER BY first_failed_at DESC, id DESC
LIMIT :limit

-- name: failure
SELECT id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts, is_final_attempt,
    failed_reason, stack_trace, first_failed_at, resolved_at, started_at, owner,
    occurrences, last_failed_at
FROM job_failures WHERE id = :id

-- name: prune_more_failures
DELETE FROM job_failures WHERE id IN (
    SELECT id FROM job_failures WHERE (first_failed_at, id) <= (
        SELECT first_failed_at, id FROM job_failures ORDER BY first_failed_at DESC, id DESC LIMIT 1 OFFSET :count)
    ORDER BY first_failed_at, id LIMIT :limit)
RETURNING id

-- name: prune_failures
DELETE FROM job_failures WHERE id IN (
    SELECT id FROM job_failures WHERE first_failed_at < :before ORDER BY first_failed_at LIMIT :limit)
RETURNING id

-- name: failures
SELECT id::text, job_id::text, job_name, queue_name, company_id, payload::text, attempts, max_attempts, is_final_attempt,
       failed_reason, stack_trace, first_failed_at, resolved_at, started_at, owner::text,
       occurrences, last_failed_at
FROM rowlock.job_failures
WHERE ($1::text IS NULL OR company_id = $1) AND ($2::text IS NULL OR job_name = $2)
  AND ($3::uuid IS NULL OR job_id = $3) AND ($4::boolean IS NULL OR is_final_attempt = $4)
  AND (NOT $5::boolean OR resolved_at IS NULL)
  AND ($6::timestamptz IS NULL OR (first_failed_at, id) < ($6, $7::uuid))
ORDER BY first_failed_at DESC, id DESC LIMIT $8

-- name: failure
SELECT id::text, job_id::text, job_name, queue_name, company_id, payload::text, attempts, max_attempts, is_final_attempt,
       failed_reason, stack_trace, first_failed_at, resolved_at, started_at, owner::text,
       occurrences, last_failed_at
FROM rowlock.job_failures WHERE id = $1::uuid

-- name: record_failures
INSERT INTO rowlock.job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
                                  is_final_attempt, failed_reason, first_failed_at, started_at, owner)
SELECT x.id, x.job_id, x.job_name, x.queue_name, x.company_id, x.payload::json, x.attempts, x.max_attempts,
       x.is_final_attempt, x.failed_reason, coalesce($2::timestamptz, clock_timestamp()), x.started_at, x.owner
FROM json_to_recordset(CAST($1::text AS json)) AS x (
    id uuid, job_id uuid, job_name text, queue_name text, company_id text, payload text, attempts integer,
    max_attempts integer, is_final_attempt boolean, failed_reason text, started_at timestamptz, owner uuid)

-- name: add_failure
INSERT INTO rowlock.job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
                                  is_final_attempt, failed_reason, stack_trace, first_failed_at, started_at, owner)
VALUES ($1::uuid, $2::uuid, $3, $4, $5, $6::text::json, $7, $8, $9, $10, $11, $12, $13, $14::uuid)
ON CONFLICT DO NOTHING

-- name: prune_more_failures
WITH first AS MATERIALIZED (
    SELECT first_failed_at, id FROM rowlock.job_failures ORDER BY first_failed_at DESC, id DESC OFFSET $1 LIMIT 1
), removed AS (
    DELETE FROM rowlock.job_failures WHERE id = ANY (ARRAY(
        SELECT id FROM rowlock.job_failures
        WHERE (first_failed_at, id) <= (SELECT first_failed_at, id FROM first)
        ORDER BY first_failed_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING id
)
SELECT count(*) FROM removed

-- name: prune_failures
WITH removed AS (
    DELETE FROM rowlock.job_failures WHERE id = ANY (ARRAY(
        SELECT id FROM rowlock.job_failures
        WHERE first_failed_at < coalesce($3::timestamptz, clock_timestamp()) - $1::double precision * interval '1 day'
        ORDER BY first_failed_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING id
)
SELECT count(*) FROM removed

-- The newest ids of one status; each starts from the table that holds that status. Ids are UUIDv7: their order is time's.

-- name: ids_any
SELECT j.id FROM rowlock.jobs j
WHERE ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR j.id < $4)
ORDER BY j.id DESC LIMIT $5

-- name: ids_queued
SELECT j.id FROM (SELECT job_id FROM rowlock.ready UNION ALL SELECT job_id FROM rowlock.delayed) w
JOIN rowlock.jobs j ON j.id = w.job_id
WHERE ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR j.id < $4)
ORDER BY j.id DESC LIMIT $5

-- name: ids_processing
SELECT j.id FROM rowlock.running r JOIN rowlock.jobs j ON j.id = r.job_id
WHERE ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR j.id < $4)
ORDER BY j.id DESC LIMIT $5

-- name: ids_succeeded
SELECT j.id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 1
  AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR f.job_id < $4)
ORDER BY f.job_id DESC LIMIT $5

-- name: ids_failed
SELECT j.id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 2
  AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR f.job_id < $4)
ORDER BY f.job_id DESC LIMIT $5

-- name: ids_cancelled
SELECT j.id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 3
  AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR f.job_id < $4)
ORDER BY f.job_id DESC LIMIT $5

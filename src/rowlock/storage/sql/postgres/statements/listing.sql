-- Jobs that match, found by the table of their status, or among the jobs of their company. listing.py builds from each
-- statement the query for a page and the query for the count. $1 is the type, $2 the queue, $3 the company, $4 the last
-- id seen.

-- name: matching_any
SELECT j.id FROM rowlock.jobs j
WHERE ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND $3::text IS NULL
  AND ($4::uuid IS NULL OR j.id < $4)

-- name: matching_any_of_company
SELECT j.id FROM rowlock.jobs j
WHERE j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
  AND ($4::uuid IS NULL OR j.id < $4)

-- name: matching_queued
SELECT w.job_id AS id
FROM (SELECT job_id, queue FROM rowlock.ready UNION ALL SELECT job_id, queue FROM rowlock.delayed) w
WHERE ($1::text IS NULL OR EXISTS (SELECT FROM rowlock.jobs j WHERE j.id = w.job_id AND j.type = $1 OFFSET 0))
  AND ($2::text IS NULL OR w.queue = $2) AND $3::text IS NULL AND ($4::uuid IS NULL OR w.job_id < $4)

-- name: matching_queued_of_company
-- Jobs that are neither finished nor running wait: the tables of waiting jobs have no index on the job id.
SELECT j.id FROM rowlock.jobs j
WHERE j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
  AND ($4::uuid IS NULL OR j.id < $4)
  AND (j.id IN (SELECT r.job_id FROM rowlock.running r)) IS NOT TRUE
  AND NOT EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = j.id OFFSET 0)

-- name: matching_processing
SELECT j.id FROM rowlock.running r JOIN rowlock.jobs j ON j.id = r.job_id
WHERE ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR j.id < $4)

-- name: matching_succeeded
SELECT f.job_id AS id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 1 AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND $3::text IS NULL
  AND ($4::uuid IS NULL OR f.job_id < $4)

-- name: matching_succeeded_of_company
SELECT j.id FROM rowlock.jobs j
WHERE j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
  AND ($4::uuid IS NULL OR j.id < $4)
  AND EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = j.id AND f.status = 1 OFFSET 0)

-- name: matching_failed
SELECT f.job_id AS id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 2 AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND $3::text IS NULL
  AND ($4::uuid IS NULL OR f.job_id < $4)

-- name: matching_failed_of_company
SELECT j.id FROM rowlock.jobs j
WHERE j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
  AND ($4::uuid IS NULL OR j.id < $4)
  AND EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = j.id AND f.status = 2 OFFSET 0)

-- name: matching_cancelled
SELECT f.job_id AS id FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 3 AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND $3::text IS NULL
  AND ($4::uuid IS NULL OR f.job_id < $4)

-- name: matching_cancelled_of_company
SELECT j.id FROM rowlock.jobs j
WHERE j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
  AND ($4::uuid IS NULL OR j.id < $4)
  AND EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = j.id AND f.status = 3 OFFSET 0)

-- name: matching_ids
SELECT j.id FROM rowlock.records($6::uuid[]) j
WHERE ($7::text IS NULL OR j.status = $7)
  AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.company_id = $3)
  AND ($4::uuid IS NULL OR j.id < $4)

-- name: get
SELECT seq, id, type, queue, status, payload, priority, attempts, max_attempts, deaths, lease, visibility_ms,
    created_at, available_at, updated_at, locked_at, lock_owner, started_at, finished_at, progress, message,
    cancel_requested, result, error, company_id, limit_key, unique_key, trace
FROM job_records
WHERE id = :job_id

-- name: records
SELECT seq, id, type, queue, status, payload, priority, attempts, max_attempts, deaths, lease, visibility_ms,
    created_at, available_at, updated_at, locked_at, lock_owner, started_at, finished_at, progress, message,
    cancel_requested, result, error, company_id, limit_key, unique_key, trace
FROM job_records
WHERE seq IN (SELECT value FROM json_each(:seqs))
ORDER BY seq DESC

-- name: pick_any
SELECT seq FROM jobs j
WHERE j.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
ORDER BY j.seq DESC
LIMIT :limit

-- name: pick_of_company
SELECT seq FROM jobs j
WHERE j.company_id = :company_id AND j.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
ORDER BY j.seq DESC
LIMIT :limit

-- name: pick_ids
SELECT j.seq FROM job_records j
WHERE j.id IN (SELECT value FROM json_each(:ids)) AND j.seq < :before
  AND (:status IS NULL OR j.status = :status)
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
  AND (:company_id IS NULL OR j.company_id = :company_id)
ORDER BY j.seq DESC
LIMIT :limit

-- name: pick_queued
-- Reads jobs only if a filter needs it: a deep queue is scanned, not joined.
SELECT w.seq
FROM (SELECT seq, queue FROM ready UNION ALL SELECT seq, queue FROM delayed) w
WHERE w.seq < :before
  AND (:queue IS NULL OR w.queue = :queue)
  AND (:type IS NULL OR EXISTS (SELECT 1 FROM jobs j WHERE j.seq = w.seq AND j.type = :type))
ORDER BY w.seq DESC
LIMIT :limit

-- name: pick_processing
SELECT j.seq
FROM running x
CROSS JOIN jobs j ON j.seq = x.seq
WHERE x.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
  AND (:company_id IS NULL OR j.company_id = :company_id)
ORDER BY j.seq DESC
LIMIT :limit

-- name: pick_succeeded
-- The plus keeps the planner from using finished_in_time, whose rows it would have to sort.
SELECT f.seq
FROM finished f
CROSS JOIN jobs j ON j.seq = f.seq
WHERE +f.outcome = 1 AND f.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
ORDER BY f.seq DESC
LIMIT :limit

-- name: pick_dead
SELECT f.seq
FROM finished f INDEXED BY finished_badly
CROSS JOIN jobs j ON j.seq = f.seq
WHERE f.outcome > 1 AND f.seq < :before
  AND (:outcome IS NULL OR f.outcome = :outcome)
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
ORDER BY f.seq DESC
LIMIT :limit

-- name: pick_queued_of_company
SELECT j.seq FROM jobs j
WHERE j.company_id = :company_id AND j.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
  AND (
    EXISTS (
        SELECT 1 FROM ready r
        WHERE r.queue = j.queue AND r.limit_key = j.limit_key AND r.priority = j.priority AND r.seq = j.seq)
    OR EXISTS (SELECT 1 FROM delayed d WHERE d.seq = j.seq))
ORDER BY j.seq DESC
LIMIT :limit

-- name: pick_finished_of_company
SELECT j.seq FROM jobs j
WHERE j.company_id = :company_id AND j.seq < :before
  AND (:type IS NULL OR j.type = :type)
  AND (:queue IS NULL OR j.queue = :queue)
  AND EXISTS (SELECT 1 FROM finished f WHERE f.seq = j.seq AND iif(:outcome IS NULL, f.outcome > 1, f.outcome = :outcome))
ORDER BY j.seq DESC
LIMIT :limit

-- name: jobs_in_time
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE id >= :since AND id < :until LIMIT :at_most)

-- name: seq_after
-- Where the page after this job begins; if the job was removed, after the next older one.
SELECT seq + (id < :job_id) FROM jobs WHERE id <= :job_id ORDER BY id DESC LIMIT 1

-- name: cancel_ready
DELETE FROM ready
WHERE (queue, limit_key, priority, seq) IN (SELECT queue, limit_key, priority, seq FROM jobs WHERE id = :job_id)
RETURNING seq, lease, attempt, deaths, available_at

-- name: cancel_delayed
DELETE FROM delayed
WHERE seq = (SELECT seq FROM jobs WHERE id = :job_id)
RETURNING seq, lease, attempt, deaths, available_at

-- name: request_cancel
UPDATE running SET cancel_requested = 1, changed_at = iif(cancel_requested = 1, changed_at, :now)
WHERE job_id = :job_id
RETURNING job_id

-- name: job_exists
SELECT EXISTS (SELECT 1 FROM jobs WHERE id = :job_id)

-- name: kind
SELECT queue, type FROM jobs WHERE seq = :seq

-- name: dead_jobs
SELECT f.seq, j.id, j.unique_key, j.releases_key, f.lease, f.error, j.queue, j.type, f.outcome
FROM finished f
CROSS JOIN jobs j ON j.seq = f.seq
WHERE f.seq IN (SELECT value FROM json_each(:seqs)) AND f.outcome > 1
ORDER BY f.seq

-- name: live_key_holder
SELECT job_id FROM unique_keys WHERE key = :key AND (expires_at IS NULL OR expires_at > :now)

-- name: remove_finished
DELETE FROM finished WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: remove_jobs
DELETE FROM jobs WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING queue, type

-- name: remove_keys_of
DELETE FROM unique_keys
WHERE (key, job_id) IN (SELECT unique_key, id FROM jobs WHERE seq IN (SELECT value FROM json_each(:seqs)))

-- name: newest_kept_out
-- The newest job beyond the `count` newest: it and all older ones may be deleted.
SELECT finished_at, seq FROM finished WHERE outcome = :outcome
ORDER BY finished_at DESC, seq DESC
LIMIT 1 OFFSET :count

-- name: oldest_finished
SELECT seq FROM finished
WHERE outcome = :outcome AND (finished_at, seq) <= (:finished_at, :seq)
ORDER BY finished_at, seq
LIMIT :limit

-- name: forget_expired_keys
DELETE FROM unique_keys
WHERE key IN (SELECT key FROM unique_keys WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)

-- name: forget_key_pauses
DELETE FROM key_pauses WHERE until <= :now

-- name: forget_old_starts
DELETE FROM key_starts
WHERE started_at <= :now - coalesce((SELECT max(per_micros) FROM limits), 0)

-- name: pause
INSERT INTO queues (name, paused_at) VALUES (:queue, :now) ON CONFLICT (name) DO NOTHING

-- name: resume
DELETE FROM queues WHERE name = :queue

-- name: workers
SELECT id, name, queues, types, started_at, seen_at FROM workers ORDER BY started_at, id

-- name: define_limit
INSERT INTO limits (name, concurrency, rate, per_micros) VALUES (:name, :concurrency, :rate, :per_micros)
ON CONFLICT (name) DO UPDATE SET
    concurrency = excluded.concurrency, rate = excluded.rate, per_micros = excluded.per_micros

-- name: pause_key
INSERT INTO key_pauses (key, until) VALUES (:key, :until)
ON CONFLICT (key) DO UPDATE SET until = max(until, excluded.until)

-- name: forget_workers
DELETE FROM workers
WHERE seen_at < :now - 3600000000 AND NOT EXISTS (SELECT 1 FROM running x WHERE x.owner = workers.id)

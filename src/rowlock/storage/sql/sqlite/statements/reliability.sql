-- name: lock
SELECT status, payload_hash, token, holder, locked_at FROM job_idempotency_locks
WHERE company_id = :company_id AND job_key = :job_key AND scope_key = :scope_key

-- name: take_lock
-- The first token is the time: higher than any of a lock that was removed since.
INSERT INTO job_idempotency_locks (company_id, job_key, scope_key, status, payload_hash, token, holder, locked_at)
VALUES (:company_id, :job_key, :scope_key, 'running', :payload_hash, :now / 1000, :holder, :now)
ON CONFLICT (company_id, job_key, scope_key) DO UPDATE SET
    status = 'running', payload_hash = excluded.payload_hash, token = token + 1, holder = excluded.holder,
    locked_at = excluded.locked_at, ended_at = NULL
RETURNING token

-- name: renew_lock
UPDATE job_idempotency_locks SET locked_at = :now
WHERE company_id = :company_id AND job_key = :job_key AND scope_key = :scope_key AND token = :token
  AND status = 'running'
RETURNING token

-- name: end_lock
UPDATE job_idempotency_locks SET status = :status, ended_at = :now
WHERE company_id = :company_id AND job_key = :job_key AND scope_key = :scope_key AND token = :token
  AND status = 'running'
RETURNING token

-- name: locks
SELECT company_id, job_key, scope_key, status, payload_hash, token, holder, locked_at, ended_at
FROM job_idempotency_locks
WHERE (:job_key IS NULL OR job_key = :job_key) AND (:company_id IS NULL OR company_id = :company_id)
ORDER BY locked_at DESC
LIMIT :limit

-- name: prune_locks
DELETE FROM job_idempotency_locks WHERE (company_id, job_key, scope_key) IN (
    SELECT company_id, job_key, scope_key FROM job_idempotency_locks
    WHERE ended_at < :before ORDER BY ended_at LIMIT :limit)
RETURNING 1

-- name: declare_schedule
INSERT INTO schedules (name, spec, next_at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, next_at = excluded.next_at WHERE spec <> excluded.spec

-- name: schedules
SELECT name, spec, next_at, last_tick, paused_at FROM schedules ORDER BY name

-- name: move_schedule
UPDATE schedules SET next_at = :next_at WHERE name = :name AND next_at = :expected AND paused_at IS NULL
RETURNING name

-- name: advance_schedule
UPDATE schedules SET next_at = :next_at, last_tick = :at
WHERE name = :name AND next_at = :expected AND paused_at IS NULL
RETURNING name

-- name: add_run
INSERT INTO schedule_runs (name, tick, job_id, enqueued_at, status, ended_at)
VALUES (:name, :at, :job_id, :now, iif(:job_id IS NULL, 'missed', 'waiting'), iif(:job_id IS NULL, :now, NULL))

-- name: ended_runs
SELECT r.name, r.tick, r.job_id, coalesce(f.outcome, 0), r.enqueued_at, f.started_at, coalesce(f.finished_at, :now),
    iif(j.seq IS NULL, 'its job was deleted before its end was recorded', f.error)
FROM schedule_runs r INDEXED BY schedule_runs_open
LEFT JOIN jobs j ON j.id = r.job_id
LEFT JOIN finished f ON f.seq = j.seq
WHERE r.ended_at IS NULL AND (f.seq IS NOT NULL OR j.seq IS NULL)
LIMIT :limit

-- name: close_run
UPDATE schedule_runs SET status = ?, started_at = ?, ended_at = ?, error = ? WHERE name = ? AND tick = ?

-- name: runs
SELECT r.name, r.tick, r.job_id,
    CASE
        WHEN r.ended_at IS NULL AND f.outcome = 1 THEN 'succeeded'
        WHEN r.ended_at IS NULL AND f.outcome = 2 THEN 'failed'
        WHEN r.ended_at IS NULL AND f.outcome = 3 THEN 'cancelled'
        WHEN x.job_id IS NOT NULL THEN 'running'
        ELSE r.status
    END,
    r.enqueued_at, coalesce(r.started_at, f.started_at, x.locked_at), coalesce(r.ended_at, f.finished_at),
    coalesce(r.error, f.error)
FROM schedule_runs r
LEFT JOIN jobs j ON j.id = r.job_id AND r.ended_at IS NULL
LEFT JOIN finished f ON f.seq = j.seq
LEFT JOIN running x ON x.job_id = r.job_id AND r.ended_at IS NULL
WHERE (:name IS NULL OR r.name = :name) AND (:before IS NULL OR r.tick < :before)
ORDER BY r.tick DESC, r.name
LIMIT :limit

-- name: prune_runs
DELETE FROM schedule_runs WHERE (name, tick) IN (
    SELECT name, tick FROM schedule_runs WHERE ended_at < :before ORDER BY ended_at LIMIT :limit)
RETURNING 1

-- name: pause_schedule
UPDATE schedules SET paused_at = coalesce(paused_at, :now) WHERE name = :name RETURNING name

-- name: resume_schedule
UPDATE schedules SET next_at = iif(paused_at IS NULL, next_at, :next_at), paused_at = NULL WHERE name = :name
RETURNING name

-- name: raise_alert
INSERT INTO alerts (name, since) VALUES (:name, :now) ON CONFLICT DO NOTHING RETURNING name

-- name: clear_alert
DELETE FROM alerts WHERE name = :name RETURNING since

-- name: unsaid_deaths
SELECT EXISTS (SELECT 1 FROM job_failures WHERE is_final_attempt = 1 AND notice_id IS NULL)

-- name: say_deaths
UPDATE job_failures SET notice_id = :notice_id WHERE id IN (
    SELECT id FROM job_failures WHERE is_final_attempt = 1 AND notice_id IS NULL ORDER BY first_failed_at LIMIT :limit)

-- name: said_deaths
SELECT job_name, queue_name, count(*), min(first_failed_at), max(first_failed_at), max(attempts)
FROM job_failures WHERE notice_id = :notice_id
GROUP BY job_name, queue_name
ORDER BY count(*) DESC, job_name, queue_name

-- name: last_said
SELECT job_id, failed_reason FROM job_failures
WHERE notice_id = :notice_id AND job_name = :job_name AND queue_name = :queue_name
ORDER BY first_failed_at DESC, id DESC
LIMIT 3

-- name: add_measure
INSERT INTO measures (name, labels, value) VALUES (?, ?, ?)
ON CONFLICT (name, labels) DO UPDATE SET value = value + excluded.value

-- name: measures
SELECT name, labels, value FROM measures ORDER BY name, labels

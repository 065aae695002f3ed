-- name: take_lock
SELECT decision, token, holder FROM rowlock.take_lock($1, $2, $3, $4, $5, $6, $7)

-- name: renew_lock
UPDATE rowlock.job_idempotency_locks SET locked_at = coalesce($5::timestamptz, clock_timestamp())
WHERE company_id = $1 AND job_key = $2 AND scope_key = $3 AND token = $4 AND status = 'running'
RETURNING token

-- name: end_lock
UPDATE rowlock.job_idempotency_locks SET status = $5, ended_at = coalesce($6::timestamptz, clock_timestamp())
WHERE company_id = $1 AND job_key = $2 AND scope_key = $3 AND token = $4 AND status = 'running'
RETURNING token

-- name: locks
SELECT company_id, job_key, scope_key, status, payload_hash, token, holder, locked_at, ended_at
FROM rowlock.job_idempotency_locks
WHERE ($1::text IS NULL OR job_key = $1) AND ($2::text IS NULL OR company_id = $2)
ORDER BY locked_at DESC LIMIT $3

-- name: prune_locks
WITH doomed AS MATERIALIZED (
    SELECT company_id, job_key, scope_key FROM rowlock.job_idempotency_locks
    WHERE ended_at < coalesce($3::timestamptz, clock_timestamp()) - $1::double precision * interval '1 day'
    ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM rowlock.job_idempotency_locks l USING doomed d
    WHERE l.company_id = d.company_id AND l.job_key = d.job_key AND l.scope_key = d.scope_key
    RETURNING 1
)
SELECT count(*) FROM removed

-- name: declare_schedules
INSERT INTO rowlock.schedules AS s (name, spec, next_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS u (name, spec, next_at) ORDER BY 1
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, next_at = excluded.next_at WHERE s.spec <> excluded.spec

-- name: schedules
SELECT name, spec, next_at, last_tick, paused_at FROM rowlock.schedules ORDER BY name

-- name: move_schedule
UPDATE rowlock.schedules SET next_at = $3 WHERE name = $1 AND next_at = $2 AND paused_at IS NULL
RETURNING name

-- name: advance_schedule
UPDATE rowlock.schedules SET next_at = $3, last_tick = $4
WHERE name = $1 AND next_at = $2 AND paused_at IS NULL
RETURNING name

-- name: add_run
INSERT INTO rowlock.schedule_runs (name, tick, job_id, enqueued_at, status, ended_at)
SELECT $1, $2, $3::uuid, c.now, CASE WHEN $3::uuid IS NULL THEN 'missed' ELSE 'waiting' END,
       CASE WHEN $3::uuid IS NULL THEN c.now END
FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS now) c

-- name: close_runs
WITH ended AS (
    SELECT r.name, r.tick, f.status, f.started_at, coalesce(f.finished_at, $2::timestamptz, clock_timestamp()) AS finished_at,
           CASE WHEN f.status IS NULL THEN 'its job was deleted before its end was recorded' ELSE f.error END AS error
    FROM rowlock.schedule_runs r
    LEFT JOIN LATERAL (SELECT * FROM rowlock.finished x WHERE x.job_id = r.job_id OFFSET 0) f ON true
    WHERE r.ended_at IS NULL
      AND (f.status IS NOT NULL OR NOT EXISTS (SELECT FROM rowlock.jobs j WHERE j.id = r.job_id))
    LIMIT $1
)
UPDATE rowlock.schedule_runs r
SET status = CASE e.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' WHEN 3 THEN 'cancelled' ELSE 'unknown' END,
    started_at = e.started_at, ended_at = e.finished_at, error = e.error
FROM ended e WHERE r.name = e.name AND r.tick = e.tick AND r.ended_at IS NULL
RETURNING r.name, r.tick, r.job_id::text, r.status, r.enqueued_at, r.started_at, r.ended_at, r.error

-- name: runs
SELECT r.name, r.tick, r.job_id::text,
       CASE WHEN f.status IS NOT NULL AND r.ended_at IS NULL
            THEN CASE f.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END
            WHEN x.job_id IS NOT NULL THEN 'running' ELSE r.status END,
       r.enqueued_at, coalesce(r.started_at, f.started_at, x.locked_at), coalesce(r.ended_at, f.finished_at),
       coalesce(r.error, f.error)
FROM rowlock.schedule_runs r
LEFT JOIN rowlock.finished f ON f.job_id = r.job_id AND r.ended_at IS NULL
LEFT JOIN rowlock.running x ON x.job_id = r.job_id AND r.ended_at IS NULL
WHERE ($1::text IS NULL OR r.name = $1) AND ($2::timestamptz IS NULL OR r.tick < $2)
ORDER BY r.tick DESC, r.name LIMIT $3

-- name: prune_runs
WITH doomed AS MATERIALIZED (
    SELECT name, tick FROM rowlock.schedule_runs
    WHERE ended_at < coalesce($3::timestamptz, clock_timestamp()) - $1::double precision * interval '1 day'
    ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM rowlock.schedule_runs r USING doomed d WHERE r.name = d.name AND r.tick = d.tick RETURNING 1
)
SELECT count(*) FROM removed

-- name: pause_schedule
UPDATE rowlock.schedules SET paused_at = coalesce(paused_at, $2::timestamptz, clock_timestamp()) WHERE name = $1 RETURNING name

-- name: resume_schedule
UPDATE rowlock.schedules SET paused_at = NULL, next_at = CASE WHEN paused_at IS NULL THEN next_at ELSE $2 END
WHERE name = $1 RETURNING name

-- name: raise_alert
INSERT INTO rowlock.alerts (name, since) VALUES ($1, coalesce($2::timestamptz, clock_timestamp()))
ON CONFLICT DO NOTHING RETURNING name

-- name: clear_alert
DELETE FROM rowlock.alerts WHERE name = $1 RETURNING since

-- name: unsaid_deaths
SELECT EXISTS (SELECT FROM rowlock.job_failures WHERE is_final_attempt AND notice_id IS NULL)

-- name: say_deaths
UPDATE rowlock.job_failures SET notice_id = $1::uuid WHERE id = ANY (ARRAY(
    SELECT id FROM rowlock.job_failures WHERE is_final_attempt AND notice_id IS NULL
    ORDER BY first_failed_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: said_deaths
SELECT job_name, queue_name, count(*), min(first_failed_at), max(first_failed_at), max(attempts),
       (array_agg(job_id::text ORDER BY first_failed_at DESC, id DESC))[1:3],
       (array_agg(failed_reason ORDER BY first_failed_at DESC, id DESC))[1]
FROM rowlock.job_failures WHERE notice_id = $1::uuid
GROUP BY job_name, queue_name ORDER BY count(*) DESC, job_name, queue_name

-- name: add_measures
INSERT INTO rowlock.measures AS m (name, labels, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::double precision[]) AS u (name, labels, value) ORDER BY 1, 2
ON CONFLICT (name, labels) DO UPDATE SET value = m.value + excluded.value

-- name: measures
SELECT name, labels, value FROM rowlock.measures ORDER BY name, labels

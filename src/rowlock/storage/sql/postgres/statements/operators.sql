-- name: get
SELECT * FROM rowlock.records(ARRAY[$1::uuid])

-- name: records
SELECT * FROM rowlock.records($1::uuid[])

-- name: cancel
SELECT rowlock.cancel($1::uuid, $2::timestamptz)

-- name: retry
SELECT id, retried FROM rowlock.retry($1::uuid[], $2::timestamptz)

-- name: discard
WITH doomed AS (
    SELECT f.job_id, f.status FROM rowlock.finished f
    WHERE f.job_id = ANY ($1::uuid[]) AND f.status <> 1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), keys AS (
    DELETE FROM rowlock.unique_keys k USING rowlock.jobs j, doomed d
    WHERE j.id = d.job_id AND k.key = j.unique_key AND k.job_id = j.id
), removed AS (
    DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.id, j.queue, j.type, d.status
), tallied AS (
    INSERT INTO rowlock.counter_deltas (at, queue, type, failed, cancelled)
    SELECT coalesce($2::timestamptz, clock_timestamp()), queue, type,
           -count(*) FILTER (WHERE status = 2), -count(*) FILTER (WHERE status = 3)
    FROM removed GROUP BY queue, type
)
SELECT id::text FROM removed

-- name: pause
INSERT INTO rowlock.queues AS q (name, paused_at) VALUES ($1, coalesce($2::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, excluded.paused_at)

-- name: resume
DELETE FROM rowlock.queues WHERE name = $1

-- name: queues
WITH clock AS (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), counted AS (
    SELECT queue, sum(alive) AS alive, sum(delayed) AS delayed FROM (
        SELECT queue, alive, delayed FROM rowlock.totals UNION ALL SELECT queue, alive, delayed FROM rowlock.counter_deltas) t
    GROUP BY queue
), running AS (
    SELECT j.queue, count(*) AS processing
    FROM rowlock.running r CROSS JOIN LATERAL (SELECT x.queue FROM rowlock.jobs x WHERE x.id = r.job_id OFFSET 0) j
    GROUP BY j.queue
), named AS (
    SELECT queue FROM counted WHERE alive > 0 UNION SELECT name FROM rowlock.queues WHERE paused_at IS NOT NULL
), due AS (
    -- Delayed jobs that are due count as ready, although no claim has moved them yet.
    SELECT n.queue, count(d.available_at) AS count, min(d.available_at) AS since
    FROM clock c, named n LEFT JOIN LATERAL (
        SELECT x.available_at FROM rowlock.delayed x WHERE x.queue = n.queue AND x.available_at <= c.now
        ORDER BY x.available_at LIMIT 10000) d ON true
    GROUP BY n.queue
)
SELECT n.queue, q.paused_at IS NOT NULL,
       (coalesce(c.alive, 0) - coalesce(r.processing, 0) - coalesce(c.delayed, 0) + d.count)::bigint,
       (coalesce(c.delayed, 0) - d.count)::bigint, coalesce(r.processing, 0),
       extract(epoch FROM clock.now - least(rowlock.ready_since(n.queue), d.since))::double precision
FROM clock, named n
LEFT JOIN counted c ON c.queue = n.queue LEFT JOIN running r ON r.queue = n.queue
LEFT JOIN due d ON d.queue = n.queue
LEFT JOIN rowlock.queues q ON q.name = n.queue
ORDER BY n.queue

-- name: counts
WITH summed AS (
    SELECT coalesce(sum(alive), 0)::bigint AS alive, coalesce(sum(succeeded), 0)::bigint AS succeeded,
           coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(cancelled), 0)::bigint AS cancelled
    FROM (SELECT alive, succeeded, failed, cancelled FROM rowlock.totals
          UNION ALL SELECT alive, succeeded, failed, cancelled FROM rowlock.counter_deltas) t
)
SELECT s.alive - r.count, r.count, s.succeeded, s.failed, s.cancelled
FROM summed s, (SELECT count(*) FROM rowlock.running) r

-- name: activity
-- What happened since a moment, by queue and type; includes rows that are not compacted yet.
WITH recent AS (
    SELECT queue, type, succeeded, failed, cancelled, failures, retries, rescues, seconds FROM rowlock.minutes
    WHERE minute >= date_trunc('minute', coalesce($2::timestamptz, clock_timestamp()) - $1::double precision * interval '1 second')
    UNION ALL
    SELECT queue, type, greatest(succeeded, 0), greatest(failed, 0), greatest(cancelled, 0), failures, retries, rescues, seconds
    FROM rowlock.counter_deltas
    WHERE at >= date_trunc('minute', coalesce($2::timestamptz, clock_timestamp()) - $1::double precision * interval '1 second')
)
SELECT queue, type, sum(succeeded)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(failures)::bigint,
       sum(retries)::bigint, sum(rescues)::bigint, sum(seconds)
FROM recent WHERE type <> '' GROUP BY queue, type
HAVING sum(succeeded + failed + cancelled + failures + retries + rescues) > 0 ORDER BY queue, type

-- name: totals
SELECT queue, type, sum(alive)::bigint, sum(succeeded)::bigint, sum(failed)::bigint, sum(cancelled)::bigint
FROM (SELECT queue, type, alive, succeeded, failed, cancelled FROM rowlock.totals
      UNION ALL SELECT queue, type, alive, succeeded, failed, cancelled FROM rowlock.counter_deltas) t
WHERE type <> '' GROUP BY queue, type ORDER BY queue, type

-- name: compact
WITH gone AS (
    DELETE FROM rowlock.counter_deltas
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM rowlock.counter_deltas LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING *
), total AS (
    INSERT INTO rowlock.totals AS t (queue, type, alive, delayed, succeeded, failed, cancelled)
    SELECT queue, type, sum(alive), sum(delayed), sum(succeeded), sum(failed), sum(cancelled)
    FROM gone GROUP BY queue, type ORDER BY queue, type
    ON CONFLICT (queue, type) DO UPDATE
    SET alive = t.alive + excluded.alive, delayed = t.delayed + excluded.delayed,
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled
), recent AS (
    INSERT INTO rowlock.minutes AS m (minute, queue, type, succeeded, failed, cancelled, failures, retries, rescues, seconds)
    SELECT date_trunc('minute', at), queue, type, sum(greatest(succeeded, 0)), sum(greatest(failed, 0)),
           sum(greatest(cancelled, 0)), sum(failures), sum(retries), sum(rescues), sum(seconds)
    FROM gone WHERE type <> '' AND succeeded + failed + cancelled + failures + retries + rescues > 0
    GROUP BY 1, queue, type ORDER BY 1, queue, type
    ON CONFLICT (minute, queue, type) DO UPDATE
    SET succeeded = m.succeeded + excluded.succeeded, failed = m.failed + excluded.failed,
        cancelled = m.cancelled + excluded.cancelled, failures = m.failures + excluded.failures,
        retries = m.retries + excluded.retries, rescues = m.rescues + excluded.rescues, seconds = m.seconds + excluded.seconds
)
SELECT count(*) FROM gone

-- name: forget_minutes
WITH gone AS (
    DELETE FROM rowlock.lags WHERE minute < coalesce($1::timestamptz, clock_timestamp()) - interval '25 hours'
)
DELETE FROM rowlock.minutes WHERE minute < coalesce($1::timestamptz, clock_timestamp()) - interval '25 hours'

-- name: workers
SELECT id::text, name, queues, types, started_at, seen_at FROM rowlock.workers ORDER BY started_at, id

-- name: prune_old
WITH doomed AS (
    SELECT job_id FROM rowlock.finished
    WHERE status = $1::integer AND finished_at < coalesce($4::timestamptz, clock_timestamp()) - $2::double precision * interval '1 day'
    ORDER BY finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), removed AS (
    DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.queue, j.type
), tallied AS (
    INSERT INTO rowlock.counter_deltas (at, queue, type, succeeded, failed, cancelled)
    SELECT coalesce($4::timestamptz, clock_timestamp()), queue, type, CASE $1 WHEN 1 THEN -count(*) ELSE 0 END,
           CASE $1 WHEN 2 THEN -count(*) ELSE 0 END, CASE $1 WHEN 3 THEN -count(*) ELSE 0 END
    FROM removed GROUP BY queue, type
)
SELECT count(*) FROM removed

-- name: prune_beyond
WITH oldest_kept AS (
    SELECT job_id FROM rowlock.finished WHERE status = $1::integer ORDER BY job_id DESC OFFSET $2 LIMIT 1
), doomed AS (
    SELECT job_id FROM rowlock.finished
    WHERE status = $1::integer AND job_id <= (SELECT job_id FROM oldest_kept) ORDER BY job_id LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM rowlock.finished f USING doomed d WHERE f.job_id = d.job_id
), removed AS (
    DELETE FROM rowlock.jobs j USING doomed d WHERE j.id = d.job_id RETURNING j.queue, j.type
), tallied AS (
    INSERT INTO rowlock.counter_deltas (at, queue, type, succeeded, failed, cancelled)
    SELECT coalesce($4::timestamptz, clock_timestamp()), queue, type, CASE $1 WHEN 1 THEN -count(*) ELSE 0 END,
           CASE $1 WHEN 2 THEN -count(*) ELSE 0 END, CASE $1 WHEN 3 THEN -count(*) ELSE 0 END
    FROM removed GROUP BY queue, type
)
SELECT count(*) FROM removed

-- name: prune_keys
-- FOR UPDATE reads the newest version of the row, so a key that another transaction has just retaken is not deleted.
DELETE FROM rowlock.unique_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM rowlock.unique_keys WHERE expires_at <= coalesce($2::timestamptz, clock_timestamp())
    LIMIT $1 FOR UPDATE SKIP LOCKED))

-- name: forget_pauses
DELETE FROM rowlock.key_pauses WHERE until <= coalesce($1::timestamptz, clock_timestamp())

-- name: forget_starts
DELETE FROM rowlock.key_starts
WHERE started_at <= coalesce($1::timestamptz, clock_timestamp())
                    - coalesce((SELECT max(per_seconds) FROM rowlock.limits), 0) * interval '1 second'

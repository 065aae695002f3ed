-- name: retrying
SELECT (SELECT count(*) FROM rowlock.ready WHERE updated_at IS NOT NULL AND attempt > 0 AND queue = ANY ($1::text[]))
       + (SELECT count(*) FROM rowlock.delayed WHERE attempt > 0 AND queue = ANY ($1::text[]))

-- name: mean_completed
SELECT (avg(extract(epoch FROM f.finished_at - f.started_at)) * 1000)::double precision
FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
WHERE f.status = 1 AND f.finished_at > coalesce($2::timestamptz, clock_timestamp()) - interval '1 day'
  AND j.queue = ANY ($1::text[])

-- name: counts_of_company
WITH clock AS (
    SELECT coalesce($3::timestamptz, clock_timestamp()) AS now OFFSET 0
), mine AS MATERIALIZED (
    SELECT j.id, f.status, f.started_at, f.finished_at
    FROM rowlock.jobs j
    LEFT JOIN LATERAL (SELECT x.status, x.started_at, x.finished_at FROM rowlock.finished x WHERE x.job_id = j.id OFFSET 0) f ON true
    WHERE j.company_id = $2 AND j.queue = ANY ($1::text[])
), over AS (
    SELECT count(*) FILTER (WHERE m.status = 2) AS dead,
           count(*) FILTER (WHERE m.status = 1 AND m.finished_at > c.now - interval '1 day') AS completed,
           avg(extract(epoch FROM m.finished_at - m.started_at) * 1000)
               FILTER (WHERE m.status = 1 AND m.finished_at > c.now - interval '1 day')::double precision AS mean
    FROM mine m, clock c
), alive AS (
    SELECT count(*) FILTER (WHERE a.status = 'queued' AND a.attempts = 0) AS pending,
           count(*) FILTER (WHERE a.status = 'processing') AS processing,
           count(*) FILTER (WHERE a.status = 'queued' AND a.attempts > 0) AS retrying,
           extract(epoch FROM max(c.now - a.available_at) FILTER (WHERE a.status = 'queued' AND a.available_at <= c.now))::double precision AS lag
    FROM clock c, rowlock.records(ARRAY(SELECT id FROM mine WHERE status IS NULL)) a
)
SELECT a.pending, a.processing, a.retrying, o.dead, o.completed, o.mean, a.lag FROM over o, alive a

-- name: failing
-- Reads the latest failures job by job until there are enough: most jobs that failed recently are still failing.
SELECT a.* FROM (
    SELECT x.job_id, max(x.first_failed_at) AS failed_at
    FROM unnest($1::text[]) AS q (name)
    CROSS JOIN LATERAL (
        SELECT f.job_id, f.first_failed_at FROM rowlock.job_failures f WHERE f.queue_name = q.name
        ORDER BY f.first_failed_at DESC, f.id DESC LIMIT $3) x
    GROUP BY x.job_id ORDER BY 2 DESC, 1 DESC OFFSET 0) l
CROSS JOIN LATERAL rowlock.records(ARRAY[l.job_id]) a
WHERE a.status = 'failed' OR (a.status = 'queued' AND a.attempts > 0)
ORDER BY l.failed_at DESC, l.job_id DESC LIMIT $2

-- name: failing_of_company
SELECT a.* FROM (
    SELECT x.job_id, max(x.first_failed_at) AS failed_at
    FROM (SELECT f.job_id, f.first_failed_at FROM rowlock.job_failures f
          WHERE f.company_id = $4 AND f.queue_name = ANY ($1::text[])
          ORDER BY f.first_failed_at DESC, f.id DESC LIMIT $3) x
    GROUP BY x.job_id ORDER BY 2 DESC, 1 DESC OFFSET 0) l
CROSS JOIN LATERAL rowlock.records(ARRAY[l.job_id]) a
WHERE a.status = 'failed' OR (a.status = 'queued' AND a.attempts > 0)
ORDER BY l.failed_at DESC, l.job_id DESC LIMIT $2

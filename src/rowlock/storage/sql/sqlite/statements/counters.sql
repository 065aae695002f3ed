-- name: add_totals
INSERT INTO totals (queue, type, alive, delayed, succeeded, failed, cancelled) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, type) DO UPDATE SET
    alive = alive + excluded.alive, delayed = delayed + excluded.delayed, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled

-- name: add_minutes
INSERT INTO minutes (minute, queue, type, succeeded, failed, cancelled, failures, retries, rescues, seconds)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (minute, queue, type) DO UPDATE SET
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled, failures = failures + excluded.failures,
    retries = retries + excluded.retries, rescues = rescues + excluded.rescues, seconds = seconds + excluded.seconds

-- name: counts
SELECT coalesce(sum(alive), 0) - (SELECT count(*) FROM running), (SELECT count(*) FROM running),
    coalesce(sum(succeeded), 0), coalesce(sum(failed), 0), coalesce(sum(cancelled), 0)
FROM totals

-- name: totals
SELECT queue, type, alive, succeeded, failed, cancelled FROM totals WHERE type <> '' ORDER BY queue, type

-- name: activity
SELECT queue, type, sum(succeeded), sum(failed), sum(cancelled), sum(failures), sum(retries), sum(rescues), sum(seconds)
FROM minutes WHERE minute >= :since
GROUP BY queue, type ORDER BY queue, type

-- name: forget_minutes
DELETE FROM minutes WHERE minute < :before

-- name: queues
WITH named (name) AS (
    SELECT name FROM queues UNION SELECT queue FROM totals GROUP BY queue HAVING sum(alive) > 0
), oldest (queue, since) AS (
    SELECT n.name, (SELECT min(r.available_at) FROM ready r WHERE r.queue = n.name) FROM named n
), due (queue, number, since) AS (
    SELECT n.name, count(d.seq), min(d.available_at)
    FROM named n LEFT JOIN delayed d ON d.queue = n.name AND d.available_at <= :now GROUP BY n.name
), working (queue, number) AS (
    SELECT j.queue, count(*) FROM running x CROSS JOIN jobs j ON j.seq = x.seq GROUP BY j.queue
)
SELECT n.name, EXISTS (SELECT 1 FROM queues q WHERE q.name = n.name),
    coalesce(t.alive, 0) - coalesce(w.number, 0) - coalesce(t.delayed, 0) + d.number,
    coalesce(t.delayed, 0) - d.number, coalesce(w.number, 0),
    min(coalesce(o.since, d.since), coalesce(d.since, o.since))
FROM named n
JOIN due d ON d.queue = n.name
LEFT JOIN working w ON w.queue = n.name
LEFT JOIN (SELECT queue, sum(alive) AS alive, sum(delayed) AS delayed FROM totals GROUP BY queue) t ON t.queue = n.name
JOIN oldest o ON o.queue = n.name
ORDER BY n.name

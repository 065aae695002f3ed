-- name: running_first
SELECT x.job_id, j.type, j.queue, j.company_id, x.owner, x.attempt, x.locked_at, x.progress, x.message
FROM (SELECT * FROM running ORDER BY locked_at, job_id LIMIT :limit) x
CROSS JOIN jobs j ON j.seq = x.seq
ORDER BY x.locked_at, x.job_id

-- name: run_now
DELETE FROM delayed
WHERE seq = (SELECT seq FROM jobs WHERE id = :job_id) AND available_at > :now
RETURNING seq, lease, attempt, deaths, error, queue

-- name: dead_groups
WITH dead AS (
    SELECT j.id, j.type, f.error, f.finished_at
    FROM finished f INDEXED BY finished_badly
    CROSS JOIN jobs j ON j.seq = f.seq
    WHERE f.outcome = 2 AND f.outcome > 1
      AND (:type IS NULL OR j.type = :type) AND (:queue IS NULL OR j.queue = :queue)
    ORDER BY f.seq DESC
    LIMIT :look_at
), told AS (
    SELECT id, type, finished_at,
        substr(e.error, 1, min(201, coalesce(nullif(instr(e.error, char(10)), 0), 201),
            coalesce(nullif(instr(e.error, ' (attempt '), 0), 201)) - 1) AS reason
    FROM dead e
)
SELECT type, coalesce(reason, ''), count(*), min(finished_at), max(finished_at), max(id), sum(count(*)) OVER ()
FROM told GROUP BY 1, 2
ORDER BY count(*) DESC, max(finished_at) DESC, 1, 2
LIMIT :limit

-- name: dead_groups_of_company
WITH dead AS (
    SELECT j.id, j.type, f.error, f.finished_at
    FROM jobs j CROSS JOIN finished f ON f.seq = j.seq
    WHERE j.company_id = :company_id AND +f.outcome = 2
      AND (:type IS NULL OR j.type = :type) AND (:queue IS NULL OR j.queue = :queue)
    ORDER BY j.seq DESC
    LIMIT :look_at
), told AS (
    SELECT id, type, finished_at,
        substr(e.error, 1, min(201, coalesce(nullif(instr(e.error, char(10)), 0), 201),
            coalesce(nullif(instr(e.error, ' (attempt '), 0), 201)) - 1) AS reason
    FROM dead e
)
SELECT type, coalesce(reason, ''), count(*), min(finished_at), max(finished_at), max(id), sum(count(*)) OVER ()
FROM told GROUP BY 1, 2
ORDER BY count(*) DESC, max(finished_at) DESC, 1, 2
LIMIT :limit

-- name: history
SELECT minute, queue, sum(succeeded), sum(failed), sum(failures) FROM minutes WHERE minute > :since
GROUP BY minute, queue HAVING sum(succeeded + failed + failures) > 0

-- name: lags
SELECT minute, seconds FROM lags WHERE minute > :since

-- name: note_lags
INSERT INTO lags (minute, seconds) VALUES (:minute, :seconds) ON CONFLICT (minute) DO NOTHING RETURNING minute

-- name: forget_lags
DELETE FROM lags WHERE minute < :before

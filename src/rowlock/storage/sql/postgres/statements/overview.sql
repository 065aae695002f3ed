-- name: running
SELECT r.job_id::text, j.type, j.queue, j.company_id, r.owner::text, r.attempt, r.locked_at, r.progress, r.message
FROM (SELECT * FROM rowlock.running ORDER BY locked_at, job_id LIMIT $1) r
CROSS JOIN LATERAL (SELECT x.type, x.queue, x.company_id FROM rowlock.jobs x WHERE x.id = r.job_id OFFSET 0) j
ORDER BY r.locked_at, r.job_id

-- name: run_now
WITH clock AS (
    SELECT coalesce($2::timestamptz, clock_timestamp()) AS now OFFSET 0
), moved AS (
    DELETE FROM rowlock.delayed d USING clock c WHERE d.job_id = $1::uuid AND d.available_at > c.now
    RETURNING d.*, c.now
), placed AS (
    INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
    SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, now, now, error FROM moved
), tallied AS (
    INSERT INTO rowlock.counter_deltas (at, queue, type, delayed) SELECT now, queue, '', -1 FROM moved
)
SELECT queue FROM moved

-- name: dead_groups
-- Groups of the newest $4 dead letters; $1 is the type (or its prefix, see overview.py), $2 the queue, $3 the company.
-- The planner chooses the join: a merge join by id if most jobs have failed, a nested loop if few have.
WITH dead AS (
    SELECT j.id, j.type, left(split_part(split_part(coalesce(f.error, ''), E'\n', 1), ' (attempt ', 1), 200) AS reason, f.finished_at
    FROM rowlock.finished f JOIN rowlock.jobs j ON j.id = f.job_id
    WHERE f.status = 2 AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2) AND $3::text IS NULL
    ORDER BY f.job_id DESC LIMIT $4
)
SELECT type, reason, count(*), min(finished_at), max(finished_at), max(id::text), (sum(count(*)) OVER ())::bigint
FROM dead GROUP BY type, reason ORDER BY count(*) DESC, max(finished_at) DESC, type, reason LIMIT $5

-- name: dead_groups_of_company
WITH dead AS (
    SELECT j.id, j.type, left(split_part(split_part(coalesce(f.error, ''), E'\n', 1), ' (attempt ', 1), 200) AS reason, f.finished_at
    FROM rowlock.jobs j JOIN rowlock.finished f ON f.job_id = j.id
    WHERE f.status = 2 AND j.company_id = $3::text AND ($1::text IS NULL OR j.type = $1) AND ($2::text IS NULL OR j.queue = $2)
    ORDER BY j.id DESC LIMIT $4
)
SELECT type, reason, count(*), min(finished_at), max(finished_at), max(id::text), (sum(count(*)) OVER ())::bigint
FROM dead GROUP BY type, reason ORDER BY count(*) DESC, max(finished_at) DESC, type, reason LIMIT $5

-- name: history
-- The first row has the current minute. The next rows have what happened in each minute, including rows that are not
-- compacted yet; the last rows have the lags recorded in each.
WITH clock AS (
    SELECT date_trunc('minute', coalesce($2::timestamptz, clock_timestamp())) AS minute OFFSET 0
), recent AS (
    SELECT m.minute, m.queue, m.succeeded, m.failed, m.failures FROM clock c, rowlock.minutes m
    WHERE m.minute > c.minute - $1::integer * interval '1 minute'
    UNION ALL
    SELECT date_trunc('minute', t.at), t.queue, greatest(t.succeeded, 0), greatest(t.failed, 0), t.failures
    FROM clock c, rowlock.counter_deltas t
    WHERE t.at >= c.minute - ($1::integer - 1) * interval '1 minute' AND t.type <> ''
)
SELECT minute, NULL::text, 0::bigint, 0::bigint, 0::bigint, NULL::text FROM clock
UNION ALL
SELECT minute, queue, sum(succeeded)::bigint, sum(failed)::bigint, sum(failures)::bigint, NULL FROM recent
GROUP BY minute, queue HAVING sum(succeeded + failed + failures) > 0
UNION ALL
SELECT l.minute, NULL, 0, 0, 0, l.seconds::text FROM clock c, rowlock.lags l
WHERE l.minute > c.minute - $1::integer * interval '1 minute'

-- name: note_lags
INSERT INTO rowlock.lags (minute, seconds)
VALUES (date_trunc('minute', coalesce($2::timestamptz, clock_timestamp())), CAST($1::text AS json))
ON CONFLICT (minute) DO NOTHING RETURNING minute

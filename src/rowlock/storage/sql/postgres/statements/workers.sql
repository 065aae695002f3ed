-- name: beat
WITH alive AS (
    INSERT INTO rowlock.workers AS w (id, name, queues, types, started_at, seen_at)
    SELECT u.id, u.name, string_to_array(u.queues, E'\n'), string_to_array(u.types, E'\n'), c.now, c.now
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS u (id, name, queues, types),
         (SELECT coalesce($5::timestamptz, clock_timestamp()) AS now) c
    ORDER BY u.id
    ON CONFLICT (id) DO UPDATE SET seen_at = greatest(w.seen_at, excluded.seen_at),
        types = CASE WHEN cardinality(excluded.types) > 0 THEN excluded.types ELSE w.types END
)
SELECT r.job_id::text, r.lease, r.owner::text, r.attempt, j.max_attempts, r.deaths, r.cancel_requested, j.type, j.queue
FROM rowlock.running r JOIN rowlock.jobs j ON j.id = r.job_id WHERE r.owner = ANY ($1::uuid[])

-- name: now
SELECT clock_timestamp()

-- name: held
SELECT r.job_id::text, r.lease, r.owner::text, r.attempt, j.max_attempts, r.deaths, r.cancel_requested, j.type, j.queue
FROM rowlock.running r JOIN rowlock.jobs j ON j.id = r.job_id WHERE r.owner = $1::uuid

-- name: shortest_lease
SELECT min(visibility_ms) FROM rowlock.running WHERE owner = ANY ($1::uuid[])

-- name: retire
DELETE FROM rowlock.workers WHERE id = $1::uuid

-- name: claim
-- Similar jobs are returned as one row: their ids and payloads as one text each, as in enqueue, their companies and
-- traces only if there are any. A job with a large payload is a row of its own: large payloads together may not fit into
-- one text. The row that says where the next claim continues has no lease.
SELECT lease, attempt, max_attempts, deaths, priority, type, limit_key, array_agg(seq), string_agg(id, chr(30)),
       string_agg(payload, chr(30)), CASE WHEN count(company_id) > 0 THEN array_agg(company_id) END,
       CASE WHEN count(trace) > 0 THEN array_agg(trace) END
FROM rowlock.claim($1, $2::uuid, $3, $4, $5, $6, $7)
GROUP BY lease, attempt, max_attempts, deaths, priority, type, limit_key, CASE WHEN octet_length(payload) > 16384 THEN seq END

-- name: peek
SELECT q.name,
       NOT EXISTS (SELECT FROM rowlock.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
       AND (EXISTS (SELECT FROM rowlock.ready r WHERE r.queue = q.name AND r.limit_key IS NULL)
            OR EXISTS (SELECT FROM rowlock.ready r WHERE r.queue = q.name AND r.limit_key IS NOT NULL)
            OR coalesce(d.due_in <= 0, false)),
       CASE WHEN d.due_in > 0 THEN d.due_in WHEN d.due_in IS NOT NULL THEN 0 END,
       current_setting('transaction_read_only') = 'on'
FROM unnest($1::text[]) WITH ORDINALITY AS q (name, ordinal)
LEFT JOIN LATERAL (
    SELECT extract(epoch FROM x.available_at - coalesce($2::timestamptz, clock_timestamp()))::double precision AS due_in
    FROM rowlock.delayed x WHERE x.queue = q.name ORDER BY x.available_at LIMIT 1) d ON true
ORDER BY q.ordinal

-- name: settle
-- The ids are one text, as in enqueue.
SELECT rowlock.settle($1::uuid, string_to_array($2::text, chr(30))::uuid[], $3, $4, $5, $6, $7, $8, $9, $10, CAST($11::text AS json), $12)

-- name: progress
WITH reported AS (
    SELECT * FROM unnest($2::uuid[], $3::integer[], $4::smallint[], $5::text[]) AS u (id, lease, percent, message)
), held AS MATERIALIZED (
    -- Locked in the same order as in settle: two processes that change the same jobs cannot deadlock.
    SELECT r.job_id FROM rowlock.running r WHERE r.job_id = ANY ($2::uuid[]) AND r.owner = $1::uuid
    ORDER BY r.job_id FOR UPDATE
), recorded AS (
    UPDATE rowlock.running r
    SET progress = t.percent, message = t.message, updated_at = coalesce($6::timestamptz, clock_timestamp())
    FROM reported t, held h WHERE r.job_id = h.job_id AND r.job_id = t.id AND r.lease = t.lease AND r.owner = $1::uuid
    RETURNING r.job_id
)
SELECT t.id::text FROM reported t WHERE t.id NOT IN (SELECT job_id FROM recorded)

-- name: any_expired
SELECT EXISTS (
    SELECT FROM rowlock.running r LEFT JOIN rowlock.workers w ON w.id = r.owner
    WHERE greatest(r.locked_at, w.seen_at) + r.visibility_ms * interval '1 millisecond' < coalesce($1::timestamptz, clock_timestamp()))

-- name: rescue
SELECT id, type, queue, owner, attempt, max_attempts, outcome, company_id, payload, error, started_at
FROM rowlock.rescue($1, $2, $3, $4)

-- name: forget_workers
DELETE FROM rowlock.workers w
WHERE w.seen_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 hour'
  AND NOT EXISTS (SELECT FROM rowlock.running r WHERE r.owner = w.id)

-- name: define_limits
INSERT INTO rowlock.limits (name, concurrency, rate, per_seconds)
SELECT * FROM unnest($1::text[], $2::integer[], $3::integer[], $4::double precision[]) AS u (name, concurrency, rate, per_seconds)
ORDER BY 1
ON CONFLICT (name) DO UPDATE
SET concurrency = excluded.concurrency, rate = excluded.rate, per_seconds = excluded.per_seconds

-- name: pause_key
INSERT INTO rowlock.key_pauses AS p (key, until)
VALUES ($1, coalesce($3::timestamptz, clock_timestamp()) + $2::double precision * interval '1 second')
ON CONFLICT (key) DO UPDATE SET until = greatest(p.until, excluded.until)

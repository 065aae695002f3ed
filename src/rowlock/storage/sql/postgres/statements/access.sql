-- name: add_token
INSERT INTO rowlock.tokens (id, digest, name, role, company_id, created_at, expires_at)
SELECT $1::uuid, $2, $3, $4, $5, c.now, c.now + $6::double precision * interval '1 second'
FROM (SELECT coalesce($7::timestamptz, clock_timestamp()) AS now) c
RETURNING id::text, name, role, company_id, created_at, expires_at, last_used_at, revoked_at

-- name: token
SELECT id::text, name, role, company_id, created_at, expires_at, last_used_at, revoked_at FROM rowlock.tokens
WHERE digest = $1 AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > coalesce($2::timestamptz, clock_timestamp()))

-- name: tokens
SELECT id::text, name, role, company_id, created_at, expires_at, last_used_at, revoked_at FROM rowlock.tokens
ORDER BY created_at, id

-- name: revoke_token
UPDATE rowlock.tokens SET revoked_at = coalesce(revoked_at, $2::timestamptz, clock_timestamp()) WHERE id = $1::uuid
RETURNING id

-- name: touch_tokens
-- Locked in the order of ids: two processes that touch the same tokens cannot deadlock.
UPDATE rowlock.tokens SET last_used_at = coalesce($2::timestamptz, clock_timestamp())
WHERE id = ANY (ARRAY(SELECT id FROM rowlock.tokens WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE))

-- name: begin_request
SELECT state, job_id, begun_at, status, body FROM rowlock.begin_request($1, $2, $3::uuid, $4, $5, $6)

-- name: end_request
UPDATE rowlock.requests SET status = $3, body = $4 WHERE key = $1 AND begun_at = $2::timestamptz AND status IS NULL

-- name: release_request
UPDATE rowlock.requests SET released = true WHERE key = $1 AND begun_at = $2::timestamptz AND status IS NULL

-- name: prune_access
WITH clock AS (
    SELECT coalesce($3::timestamptz, clock_timestamp()) AS now
), past AS MATERIALIZED (
    SELECT r.key FROM rowlock.requests r WHERE r.expires_at <= (SELECT now FROM clock)
    ORDER BY r.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
), ended AS MATERIALIZED (
    SELECT t.id FROM rowlock.tokens t
    WHERE least(t.revoked_at, t.expires_at) < (SELECT now FROM clock) - $1::double precision * interval '1 day'
    ORDER BY least(t.revoked_at, t.expires_at) LIMIT $2 - (SELECT count(*) FROM past) FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM rowlock.requests r USING past p WHERE r.key = p.key RETURNING 1
), removed AS (
    DELETE FROM rowlock.tokens t USING ended e WHERE t.id = e.id RETURNING 1
)
SELECT (SELECT count(*) FROM forgotten) + (SELECT count(*) FROM removed)

-- name: changes
SELECT looked_at, id, type, queue, status, attempts, max_attempts, lease, progress, message, error, company_id, changed_at
FROM rowlock.changes($1, $2, $3)

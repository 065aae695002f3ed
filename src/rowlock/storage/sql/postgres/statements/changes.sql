-- name: changes
SELECT looked_at, id, type, queue, status, attempts, max_attempts, lease, progress, message, error, company_id, changed_at
FROM rowlock.changes($1, $2, $3)

-- name: may_add_view
SELECT current_schema() <> 'rowlock' AND has_schema_privilege(current_schema(), 'CREATE')
       AND to_regclass(quote_ident(current_schema()) || '.' || quote_ident($1)) IS NULL
       AND to_regtype(quote_ident(current_schema()) || '.' || quote_ident($1)) IS NULL

-- name: view_job_failures
-- The documented columns, by name: a later release may add others.
CREATE VIEW job_failures AS
SELECT id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts, is_final_attempt, failed_reason,
       stack_trace, first_failed_at, resolved_at, occurrences, last_failed_at
FROM rowlock.job_failures

-- name: view_job_idempotency_locks
CREATE VIEW job_idempotency_locks AS
SELECT company_id, job_key, scope_key, status, payload_hash, locked_at, ended_at FROM rowlock.job_idempotency_locks

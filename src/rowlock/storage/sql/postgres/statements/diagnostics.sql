-- name: diagnose_server
SELECT current_setting('server_version_num')::integer / 10000 AS version, clock_timestamp() AS clock,
       current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes, current_setting('autovacuum') AS autovacuum,
       current_setting('max_connections')::integer AS max_connections,
       (SELECT count(*)::integer FROM pg_stat_activity WHERE backend_type = 'client backend') AS used

-- name: diagnose_session
SELECT name, setting, source FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout',
               'transaction_read_only')

-- name: diagnose_role
SELECT format('%I IN DATABASE %I', session_user, current_database())

-- name: diagnose_oldest
SELECT pid, extract(epoch FROM now() - xact_start)::double precision AS age, state, application_name AS name
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1

-- name: diagnose_dead
SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables
WHERE schemaname = 'rowlock' AND relname IN ('ready', 'delayed', 'running')

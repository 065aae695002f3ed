-- name: add_import
INSERT INTO rowlock.imports (id, type, file_name, path, sha256, size_bytes, company_id, project_id, user_id, options, once,
                             scope, parent_job_id, status, created_at, updated_at)
SELECT $1::uuid, $2, $3, $4, $5, $6::bigint, $7, $8, $9, $10, $11::boolean, $12, $13::uuid, 'QUEUED', c.now, c.now
FROM (SELECT coalesce($14::timestamptz, clock_timestamp()) AS now) c
ON CONFLICT DO NOTHING RETURNING id

-- name: same_import
-- The import with this id, or else the import that this file is a duplicate of.
SELECT id FROM rowlock.imports
WHERE id = $1::uuid
   OR ($5::boolean AND once AND status NOT IN ('FAILED', 'CANCELLED')
       AND sha256 = $4 AND type = $2 AND coalesce(company_id, '') = coalesce($3::text, ''))
ORDER BY id <> $1::uuid LIMIT 1

-- name: import_records
SELECT a.id::text, a.type, a.status, a.file_name, a.path, a.sha256, a.size_bytes, a.company_id, a.project_id, a.user_id,
       a.options, a.progress, a.message, a.total_chunks, a.completed_chunks, a.rows, a.inserted, a.updated, a.unchanged,
       a.duplicate, a.invalid, a.error_count, a.meta, a.error, a.result, a.created_at, a.started_at, a.finished_at,
       a.updated_at, a.cleaned_at, a.scope
FROM unnest($1::uuid[]) WITH ORDINALITY AS u (id, place)
CROSS JOIN LATERAL (SELECT * FROM rowlock.all_imports x WHERE x.id = u.id OFFSET 0) a
ORDER BY u.place

-- name: imports
-- $1 is the last id seen, $2 the limit, $3 the type, $4 the company, $5 the status; the same in the next statements.
SELECT id FROM rowlock.imports
WHERE ($1::uuid IS NULL OR id < $1) AND $3::text IS NULL AND $4::text IS NULL AND $5::text IS NULL
ORDER BY id DESC LIMIT $2

-- name: imports_of_type
SELECT id FROM rowlock.imports
WHERE type = $3::text AND ($1::uuid IS NULL OR id < $1) AND $4::text IS NULL AND $5::text IS NULL
ORDER BY id DESC LIMIT $2

-- name: imports_of_status
SELECT id FROM rowlock.imports
WHERE status = $5::text AND ($1::uuid IS NULL OR id < $1) AND ($3::text IS NULL OR type = $3) AND $4::text IS NULL
ORDER BY id DESC LIMIT $2

-- name: imports_of_company
SELECT id FROM rowlock.imports
WHERE company_id = $4::text AND ($1::uuid IS NULL OR id < $1)
  AND ($3::text IS NULL OR type = $3) AND ($5::text IS NULL OR status = $5)
ORDER BY id DESC LIMIT $2

-- name: changed_imports
SELECT id FROM rowlock.imports WHERE updated_at >= $1 ORDER BY updated_at LIMIT $2

-- name: import_chunks
SELECT number, status, job_id::text, rows, inserted, updated, unchanged, duplicate, invalid, error_groups, notes, finished_at,
       planned_rows
FROM rowlock.import_chunks WHERE import_id = $1::uuid ORDER BY number

-- name: import_errors
-- All errors of a row are on one page, even if two chunks report it.
SELECT row_number, errors, cells FROM rowlock.import_errors
WHERE import_id = $1::uuid AND row_number = ANY (ARRAY(
    SELECT DISTINCT row_number FROM rowlock.import_errors
    WHERE import_id = $1::uuid AND row_number > $2 ORDER BY row_number LIMIT $3))
ORDER BY row_number, chunk

-- name: start_import
UPDATE rowlock.imports i
SET status = 'RUNNING', message = $2, started_at = coalesce(i.started_at, c.now), updated_at = c.now,
    turn = CASE WHEN i.scope IS NOT NULL
                THEN 1 + coalesce((SELECT max(o.turn) FROM rowlock.imports o WHERE o.scope = i.scope), 0) END
FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now) c
WHERE i.id = $1::uuid AND i.status = 'QUEUED' AND ($4::uuid IS NULL OR i.parent_job_id = $4)
RETURNING i.id

-- name: import_state
SELECT status, total_chunks FROM rowlock.imports WHERE id = $1::uuid AND ($2::uuid IS NULL OR parent_job_id = $2)

-- name: note_import
UPDATE rowlock.imports
SET planned = greatest(planned, least($2, 10)), message = $3, updated_at = coalesce($4::timestamptz, clock_timestamp())
WHERE id = $1::uuid AND status = 'RUNNING' AND ($5::uuid IS NULL OR parent_job_id = $5)
RETURNING id

-- name: plan_import
UPDATE rowlock.imports
SET total_chunks = $2, meta = $3, planned = 10, message = NULL, updated_at = coalesce($4::timestamptz, clock_timestamp())
WHERE id = $1::uuid AND status = 'RUNNING' AND total_chunks IS NULL AND parent_job_id = $5::uuid
RETURNING id

-- name: add_chunks
INSERT INTO rowlock.import_chunks (import_id, number, job_id, status, planned_rows)
SELECT $1::uuid, u.place - 1, u.job_id, 'waiting', u.rows
FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS u (job_id, rows, place)

-- name: hold_import
-- Locks the import until this transaction ends; the statements after it see all changes committed before.
SELECT total_chunks FROM rowlock.imports
WHERE id = $1::uuid AND status = 'RUNNING' AND total_chunks IS NOT NULL
FOR UPDATE

-- name: record_chunk
UPDATE rowlock.import_chunks
SET status = 'done', rows = $3, inserted = $4, updated = $5, unchanged = $6, duplicate = $7, invalid = $8,
    error_count = $9, error_groups = $10, notes = $11, finished_at = coalesce($12::timestamptz, clock_timestamp())
WHERE import_id = $1::uuid AND number = $2 AND ($13::uuid IS NULL OR job_id = $13)
RETURNING number

-- name: record_apart
-- Rows that the reader refused, or that the finish job loaded: they have no chunk job.
INSERT INTO rowlock.import_chunks (import_id, number, job_id, status, planned_rows, rows, inserted, updated, unchanged,
                                   duplicate, invalid, error_count, error_groups, notes, finished_at)
SELECT i.id, $2, w.job_id, 'done', $3, $3, $4, $5, $6, $7, $8, $9, $10, $11, coalesce($12::timestamptz, clock_timestamp())
FROM rowlock.imports i
CROSS JOIN LATERAL (SELECT CASE WHEN $2 < 0 THEN i.parent_job_id ELSE coalesce(i.finish_job_id, i.parent_job_id) END AS job_id) w
WHERE i.id = $1::uuid AND ($13::uuid IS NULL OR w.job_id = $13)
ON CONFLICT (import_id, number) DO UPDATE SET
    job_id = excluded.job_id, planned_rows = excluded.planned_rows, rows = excluded.rows, inserted = excluded.inserted,
    updated = excluded.updated, unchanged = excluded.unchanged, duplicate = excluded.duplicate, invalid = excluded.invalid,
    error_count = excluded.error_count, error_groups = excluded.error_groups, notes = excluded.notes,
    finished_at = excluded.finished_at
RETURNING number

-- name: record_part
-- Records a part of a chunk that is loaded in several transactions: once, and only while the chunk waits.
INSERT INTO rowlock.import_chunks (import_id, number, job_id, status, planned_rows, rows, inserted, updated, unchanged,
                                   duplicate, invalid, error_count, error_groups, notes, finished_at)
SELECT c.import_id, $2, c.job_id, 'done', $3, $3, $4, $5, $6, $7, $8, $9, $10, $11, coalesce($12::timestamptz, clock_timestamp())
FROM rowlock.import_chunks c
WHERE c.import_id = $1::uuid AND c.number = $14 AND c.status = 'waiting' AND ($13::uuid IS NULL OR c.job_id = $13)
ON CONFLICT (import_id, number) DO NOTHING
RETURNING number

-- name: forget_chunk_errors
DELETE FROM rowlock.import_errors WHERE import_id = $1::uuid AND chunk = $2

-- name: add_chunk_errors
INSERT INTO rowlock.import_errors (import_id, chunk, row_number, errors, cells)
SELECT $1::uuid, $2, u.* FROM unnest($3::bigint[], $4::text[], $5::text[]) AS u (row_number, errors, cells)

-- name: trim_import_errors
DELETE FROM rowlock.import_errors
WHERE import_id = $1::uuid AND row_number >= (
    SELECT DISTINCT row_number FROM rowlock.import_errors WHERE import_id = $1::uuid ORDER BY row_number LIMIT 1 OFFSET $2)

-- name: touch_import
UPDATE rowlock.imports SET message = NULL, updated_at = coalesce($2::timestamptz, clock_timestamp()) WHERE id = $1::uuid

-- name: import_standing
SELECT status, completed_chunks, total_chunks, error_count FROM rowlock.all_imports WHERE id = $1::uuid

-- name: queue_finish
UPDATE rowlock.imports i SET finish_job_id = $2::uuid, updated_at = coalesce($3::timestamptz, clock_timestamp())
WHERE i.id = $1::uuid AND i.status = 'RUNNING' AND i.total_chunks IS NOT NULL AND i.finish_job_id IS NULL
  AND NOT EXISTS (SELECT FROM rowlock.import_chunks c WHERE c.import_id = i.id AND c.status = 'waiting')
RETURNING i.id

-- name: hold_finish
SELECT id FROM rowlock.imports
WHERE id = $1::uuid AND status = 'RUNNING' AND total_chunks IS NOT NULL AND finish_job_id = $2::uuid
FOR UPDATE

-- name: end_import
-- $7 is the job that ends the import; NULL: any.
UPDATE rowlock.imports i
SET status = $2, message = $3, error = $4, result = $5, finished_at = c.now, updated_at = c.now
FROM (SELECT coalesce($6::timestamptz, clock_timestamp()) AS now) c
WHERE i.id = $1::uuid AND i.status IN ('QUEUED', 'RUNNING')
  AND ($7::uuid IS NULL OR i.finish_job_id = $7 OR (i.total_chunks IS NULL AND i.parent_job_id = $7)
       OR EXISTS (SELECT FROM rowlock.import_chunks c
                  WHERE c.import_id = i.id AND c.number >= 0 AND c.number < i.total_chunks AND c.job_id = $7))
RETURNING i.id

-- name: live_import_jobs
SELECT w.job_id::text
FROM (SELECT u.job_id, -1 AS number FROM rowlock.imports i, unnest(ARRAY[i.id, i.parent_job_id, i.finish_job_id]) AS u (job_id)
      WHERE i.id = $1::uuid
      UNION ALL
      SELECT c.job_id, c.number FROM rowlock.import_chunks c WHERE c.import_id = $1::uuid) w
WHERE EXISTS (SELECT FROM rowlock.jobs j WHERE j.id = w.job_id OFFSET 0)
  AND NOT EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = w.job_id OFFSET 0)
GROUP BY w.job_id ORDER BY min(w.number), w.job_id

-- name: hold_dead_import
SELECT total_chunks FROM rowlock.imports
WHERE id = $1::uuid AND status IN ('FAILED', 'CANCELLED') AND cleaned_at IS NULL
FOR UPDATE

-- name: waiting_chunks
SELECT number FROM rowlock.import_chunks WHERE import_id = $1::uuid AND status = 'waiting'

-- name: resume_import
UPDATE rowlock.imports
SET status = CASE WHEN total_chunks IS NULL THEN 'QUEUED' ELSE 'RUNNING' END,
    parent_job_id = coalesce($2::uuid, parent_job_id), finish_job_id = coalesce($3::uuid, finish_job_id),
    message = NULL, error = NULL, result = NULL, finished_at = NULL,
    updated_at = coalesce($4::timestamptz, clock_timestamp())
WHERE id = $1::uuid AND status IN ('FAILED', 'CANCELLED') AND cleaned_at IS NULL

-- name: overtaken_import
-- Another import of the same scope that was planned in the same or a later turn: it has wiped the rows of this one.
SELECT o.id FROM rowlock.imports i JOIN rowlock.imports o ON o.scope = i.scope AND o.turn >= i.turn AND o.id <> i.id
WHERE i.id = $1::uuid AND i.total_chunks IS NOT NULL AND o.total_chunks IS NOT NULL
LIMIT 1

-- name: resume_chunks
UPDATE rowlock.import_chunks c SET job_id = u.job_id
FROM unnest($2::integer[], $3::uuid[]) AS u (number, job_id)
WHERE c.import_id = $1::uuid AND c.number = u.number AND c.status = 'waiting'

-- name: dead_imports
-- Imports that wait for a job that has ended or is gone, each with one such job, preferably a failed one.
SELECT i.id::text, d.number, d.job_id::text, d.status, d.error
FROM rowlock.imports i
CROSS JOIN LATERAL (
    SELECT w.number, w.job_id, f.status, f.error
    FROM (SELECT NULL::integer AS number, i.parent_job_id AS job_id WHERE i.total_chunks IS NULL
          UNION ALL
          SELECT c.number, c.job_id FROM rowlock.import_chunks c WHERE c.import_id = i.id AND c.status = 'waiting'
          UNION ALL
          SELECT NULL, i.finish_job_id WHERE i.finish_job_id IS NOT NULL) w
    LEFT JOIN LATERAL (SELECT x.status, x.error FROM rowlock.finished x WHERE x.job_id = w.job_id OFFSET 0) f ON true
    WHERE f.status IS NOT NULL OR NOT EXISTS (SELECT FROM rowlock.jobs j WHERE j.id = w.job_id OFFSET 0)
    ORDER BY f.status IS DISTINCT FROM 2, w.number LIMIT 1) d
WHERE i.status IN ('QUEUED', 'RUNNING') AND ($1::uuid[] IS NULL OR i.id = ANY ($1))
ORDER BY i.id LIMIT $2

-- name: hold_imports
SELECT id FROM rowlock.imports WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE

-- name: close_imports
UPDATE rowlock.imports i
SET status = 'FAILED', message = u.message, error = u.error, finished_at = c.now, updated_at = c.now
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u (id, message, error),
     (SELECT coalesce($4::timestamptz, clock_timestamp()) AS now) c
WHERE i.id = u.id AND i.status IN ('QUEUED', 'RUNNING')
RETURNING i.id::text

-- name: cleanable_imports
-- A successful import no longer needs its file, except after a dry run: the same file may then be imported.
SELECT id FROM rowlock.imports
WHERE finished_at IS NOT NULL AND cleaned_at IS NULL
  AND ((status = 'SUCCEEDED' AND options NOT LIKE '%"dryRun": true%')
       OR finished_at < coalesce($3::timestamptz, clock_timestamp()) - $1::double precision * interval '1 day')
ORDER BY finished_at, id LIMIT $2

-- name: clean_import
UPDATE rowlock.imports i SET cleaned_at = coalesce(i.cleaned_at, c.now), updated_at = coalesce(i.cleaned_at, c.now)
FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) c
WHERE i.id = $1::uuid AND i.finished_at IS NOT NULL
RETURNING i.id

-- name: prune_imports
WITH doomed AS MATERIALIZED (
    SELECT id FROM rowlock.imports i
    WHERE cleaned_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM rowlock.imports o WHERE o.scope = i.scope AND o.turn <= i.turn AND o.cleaned_at IS NULL)
      AND finished_at < coalesce($3::timestamptz, clock_timestamp()) - $1::double precision * interval '1 day'
    ORDER BY finished_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), errors AS (
    DELETE FROM rowlock.import_errors e WHERE e.import_id = ANY (ARRAY(SELECT id FROM doomed))
), chunks AS (
    DELETE FROM rowlock.import_chunks c WHERE c.import_id = ANY (ARRAY(SELECT id FROM doomed))
), removed AS (
    DELETE FROM rowlock.imports i WHERE i.id = ANY (ARRAY(SELECT id FROM doomed)) RETURNING 1
)
SELECT count(*) FROM removed

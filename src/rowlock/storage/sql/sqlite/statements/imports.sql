-- name: add_import
INSERT INTO imports (id, type, file_name, path, sha256, size_bytes, company_id, project_id, user_id, options, once, scope,
    parent_job_id, status, created_at, updated_at)
VALUES (:id, :type, :file_name, :path, :sha256, :size_bytes, :company_id, :project_id, :user_id, :options, :once, :scope,
    :job_id, 'QUEUED', :now, :now)
ON CONFLICT DO NOTHING
RETURNING id

-- name: same_import
-- The import with this id, or else the import that this file is a duplicate of.
SELECT id FROM (
    SELECT id, 0 AS place FROM imports WHERE id = :id
    UNION ALL
    SELECT id, 1 FROM imports
    WHERE :once = 1 AND once = 1 AND status NOT IN ('FAILED', 'CANCELLED')
      AND sha256 = :sha256 AND type = :type AND coalesce(company_id, '') = coalesce(:company_id, '')
)
ORDER BY place LIMIT 1

-- name: import_record
SELECT id, type, status, file_name, path, sha256, size_bytes, company_id, project_id, user_id, options, progress, message,
    total_chunks, completed_chunks, rows, inserted, updated, unchanged, duplicate, invalid, error_count, meta, error, result,
    created_at, started_at, finished_at, updated_at, cleaned_at, scope
FROM import_records WHERE id = ?

-- name: imports
SELECT id FROM imports WHERE id < :before ORDER BY id DESC LIMIT :limit

-- name: imports_of_type
SELECT id FROM imports WHERE type = :type AND id < :before ORDER BY id DESC LIMIT :limit

-- name: imports_of_status
SELECT id FROM imports WHERE status = :status AND id < :before AND (:type IS NULL OR type = :type)
ORDER BY id DESC
LIMIT :limit

-- name: imports_of_company
SELECT id FROM imports
WHERE company_id = :company_id AND id < :before
  AND (:type IS NULL OR type = :type) AND (:status IS NULL OR status = :status)
ORDER BY id DESC
LIMIT :limit

-- name: changed_imports
SELECT id FROM imports WHERE updated_at >= :since ORDER BY updated_at LIMIT :limit

-- name: import_chunks
SELECT number, status, job_id, rows, inserted, updated, unchanged, duplicate, invalid, error_groups, notes, finished_at,
    planned_rows
FROM import_chunks WHERE import_id = :id ORDER BY number

-- name: import_errors
-- All errors of a row are on one page, even if two chunks report it.
SELECT row_number, errors, cells FROM import_errors
WHERE import_id = :id AND row_number IN (
    SELECT DISTINCT row_number FROM import_errors WHERE import_id = :id AND row_number > :after_row
    ORDER BY row_number LIMIT :limit)
ORDER BY row_number, chunk

-- name: start_import
UPDATE imports
SET status = 'RUNNING', message = :message, started_at = coalesce(started_at, :now), updated_at = :now,
    turn = iif(scope IS NULL, NULL, 1 + coalesce((SELECT max(o.turn) FROM imports o WHERE o.scope = imports.scope), 0))
WHERE id = :id AND status = 'QUEUED' AND (:job_id IS NULL OR parent_job_id = :job_id)
RETURNING id

-- name: import_state
SELECT status, total_chunks FROM imports WHERE id = :id AND (:job_id IS NULL OR parent_job_id = :job_id)

-- name: note_import
UPDATE imports SET planned = max(planned, min(:progress, 10)), message = :message, updated_at = :now
WHERE id = :id AND status = 'RUNNING' AND (:job_id IS NULL OR parent_job_id = :job_id)
RETURNING id

-- name: plan_import
UPDATE imports SET total_chunks = :total, meta = :meta, planned = 10, message = NULL, updated_at = :now
WHERE id = :id AND status = 'RUNNING' AND total_chunks IS NULL AND parent_job_id = :job_id
RETURNING id

-- name: add_chunk
INSERT INTO import_chunks (import_id, number, job_id, status, planned_rows) VALUES (?, ?, ?, 'waiting', ?)

-- name: planned_chunks
SELECT total_chunks FROM imports WHERE id = :id AND status = 'RUNNING' AND total_chunks IS NOT NULL

-- name: record_chunk
UPDATE import_chunks
SET status = 'done', rows = :rows, inserted = :inserted, updated = :updated, unchanged = :unchanged, duplicate = :duplicate, invalid = :invalid,
    error_count = :error_count, error_groups = :error_groups, notes = :notes, finished_at = :now
WHERE import_id = :id AND number = :number AND (:job_id IS NULL OR job_id = :job_id)
RETURNING number

-- name: record_apart
-- Rows that the reader refused, or that the finish job loaded: they have no chunk job.
INSERT INTO import_chunks (import_id, number, job_id, status, planned_rows, rows, inserted, updated, unchanged, duplicate,
    invalid, error_count, error_groups, notes, finished_at)
SELECT id, :number, job_id, 'done', :rows, :rows, :inserted, :updated, :unchanged, :duplicate,
    :invalid, :error_count, :error_groups, :notes, :now
FROM (SELECT id, iif(:number < 0, parent_job_id, coalesce(finish_job_id, parent_job_id)) AS job_id FROM imports WHERE id = :id)
WHERE :job_id IS NULL OR job_id = :job_id
ON CONFLICT (import_id, number) DO UPDATE SET
    job_id = excluded.job_id, planned_rows = excluded.planned_rows, rows = excluded.rows, inserted = excluded.inserted,
    updated = excluded.updated, unchanged = excluded.unchanged, duplicate = excluded.duplicate, invalid = excluded.invalid,
    error_count = excluded.error_count, error_groups = excluded.error_groups, notes = excluded.notes,
    finished_at = excluded.finished_at
RETURNING number

-- name: record_part
-- Records a part of a chunk that is loaded in several transactions: once, and only while the chunk waits.
INSERT INTO import_chunks (import_id, number, job_id, status, planned_rows, rows, inserted, updated, unchanged, duplicate,
    invalid, error_count, error_groups, notes, finished_at)
SELECT import_id, :number, job_id, 'done', :rows, :rows, :inserted, :updated, :unchanged, :duplicate,
    :invalid, :error_count, :error_groups, :notes, :now
FROM import_chunks
WHERE import_id = :id AND number = :chunk AND status = 'waiting' AND (:job_id IS NULL OR job_id = :job_id)
ON CONFLICT (import_id, number) DO NOTHING
RETURNING number

-- name: forget_chunk_errors
DELETE FROM import_errors WHERE import_id = ? AND chunk = ?

-- name: add_chunk_error
INSERT INTO import_errors (import_id, chunk, row_number, errors, cells) VALUES (?, ?, ?, ?, ?)

-- name: trim_import_errors
DELETE FROM import_errors
WHERE import_id = :id AND row_number >= (
    SELECT DISTINCT row_number FROM import_errors WHERE import_id = :id ORDER BY row_number LIMIT 1 OFFSET :keep)

-- name: touch_import
UPDATE imports SET message = NULL, updated_at = :now WHERE id = :id

-- name: import_standing
SELECT status, completed_chunks, total_chunks, error_count FROM import_records WHERE id = :id

-- name: queue_finish
UPDATE imports SET finish_job_id = :job_id, updated_at = :now
WHERE id = :id AND status = 'RUNNING' AND total_chunks IS NOT NULL AND finish_job_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM import_chunks c WHERE c.import_id = imports.id AND c.status = 'waiting')
RETURNING id

-- name: finishing_import
SELECT id FROM imports
WHERE id = :id AND status = 'RUNNING' AND total_chunks IS NOT NULL AND finish_job_id = :job_id
  AND NOT EXISTS (SELECT 1 FROM import_chunks c WHERE c.import_id = imports.id AND c.status = 'waiting')

-- name: end_import
-- :job_id is the job that ends the import; NULL: any.
UPDATE imports
SET status = :status, message = :message, error = :error, result = :result, finished_at = :now, updated_at = :now
WHERE id = :id AND status IN ('QUEUED', 'RUNNING')
  AND (:job_id IS NULL OR finish_job_id = :job_id OR (total_chunks IS NULL AND parent_job_id = :job_id)
       OR EXISTS (SELECT 1 FROM import_chunks c
                  WHERE c.import_id = imports.id AND c.number >= 0 AND c.number < imports.total_chunks AND c.job_id = :job_id))
RETURNING id

-- name: live_import_jobs
SELECT w.job_id
FROM (
    SELECT id AS job_id, -1 AS number FROM imports WHERE id = :id
    UNION ALL SELECT parent_job_id, -1 FROM imports WHERE id = :id
    UNION ALL SELECT finish_job_id, -1 FROM imports WHERE id = :id
    UNION ALL SELECT job_id, number FROM import_chunks WHERE import_id = :id
) w
CROSS JOIN jobs j ON j.id = w.job_id
WHERE NOT EXISTS (SELECT 1 FROM finished f WHERE f.seq = j.seq)
GROUP BY w.job_id
ORDER BY min(w.number), w.job_id

-- name: dead_import
SELECT total_chunks FROM imports WHERE id = :id AND status IN ('FAILED', 'CANCELLED') AND cleaned_at IS NULL

-- name: waiting_chunks
SELECT number FROM import_chunks WHERE import_id = :id AND status = 'waiting'

-- name: resume_import
UPDATE imports
SET status = iif(total_chunks IS NULL, 'QUEUED', 'RUNNING'),
    parent_job_id = coalesce(:parent, parent_job_id), finish_job_id = coalesce(:finish, finish_job_id),
    message = NULL, error = NULL, result = NULL, finished_at = NULL, updated_at = :now
WHERE id = :id AND status IN ('FAILED', 'CANCELLED') AND cleaned_at IS NULL

-- name: overtaken_import
-- Another import of the same scope that was planned in a later turn: it has wiped the rows of this one.
SELECT o.id FROM imports i CROSS JOIN imports o ON o.scope = i.scope AND o.turn > i.turn
WHERE i.id = :id AND i.total_chunks IS NOT NULL AND o.total_chunks IS NOT NULL
LIMIT 1

-- name: resume_chunk
UPDATE import_chunks SET job_id = ? WHERE import_id = ? AND number = ? AND status = 'waiting'

-- name: dead_imports
-- Imports that wait for a job that has ended or is gone, with all such jobs, failed ones first.
SELECT w.id, w.number, w.job_id, f.outcome, f.error
FROM (
    SELECT id, NULL AS number, parent_job_id AS job_id FROM imports
    WHERE status IN ('QUEUED', 'RUNNING') AND total_chunks IS NULL
    UNION ALL
    SELECT i.id, c.number, c.job_id FROM imports i CROSS JOIN import_chunks c ON c.import_id = i.id
    WHERE i.status IN ('QUEUED', 'RUNNING') AND c.status = 'waiting'
    UNION ALL
    SELECT id, NULL, finish_job_id FROM imports WHERE status IN ('QUEUED', 'RUNNING') AND finish_job_id IS NOT NULL
) w
LEFT JOIN jobs j ON j.id = w.job_id
LEFT JOIN finished f ON f.seq = j.seq
WHERE f.seq IS NOT NULL OR j.seq IS NULL
ORDER BY w.id, f.outcome IS NOT 2, w.number

-- name: cleanable_imports
-- A successful import no longer needs its file, except after a dry run: the same file may then be imported.
SELECT id FROM imports
WHERE finished_at IS NOT NULL AND cleaned_at IS NULL
  AND ((status = 'SUCCEEDED' AND options NOT LIKE '%"dryRun": true%') OR finished_at < :before)
ORDER BY finished_at, id
LIMIT :limit

-- name: clean_import
UPDATE imports SET cleaned_at = coalesce(cleaned_at, :now), updated_at = coalesce(cleaned_at, :now)
WHERE id = :id AND finished_at IS NOT NULL
RETURNING id

-- name: prunable_imports
SELECT id FROM imports i
WHERE cleaned_at IS NOT NULL AND finished_at < :before
  AND NOT EXISTS (SELECT 1 FROM imports o WHERE o.scope = i.scope AND o.turn < i.turn AND o.cleaned_at IS NULL)
ORDER BY finished_at, id
LIMIT :limit

-- name: forget_import_errors
DELETE FROM import_errors WHERE import_id = ?

-- name: forget_import_chunks
DELETE FROM import_chunks WHERE import_id = ?

-- name: forget_import
DELETE FROM imports WHERE id = ?

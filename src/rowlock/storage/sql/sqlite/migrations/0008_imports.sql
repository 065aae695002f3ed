-- Imports. Nothing is counted up: totals are sums over the chunks that are done.

-- One import of one file.
CREATE TABLE imports (
    id            TEXT    NOT NULL PRIMARY KEY,
    type          TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    file_name     TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    sha256        TEXT    NOT NULL,
    size_bytes    INTEGER NOT NULL,
    company_id    TEXT,
    project_id    TEXT,
    user_id       TEXT,
    once          INTEGER NOT NULL,              -- 1: a second import of the same file is a duplicate
    scope         TEXT,                          -- what a replacing import wipes: one import of a scope runs at a time
    turn          INTEGER,                       -- order in which the imports of the scope started
    parent_job_id TEXT    NOT NULL,              -- equals the id until the import is resumed before it was planned
    finish_job_id TEXT,
    planned       INTEGER NOT NULL DEFAULT 0,    -- progress of planning: 0 to 10
    total_chunks  INTEGER,                       -- NULL: not planned yet
    message       TEXT,
    options       TEXT    NOT NULL,
    meta          TEXT    NOT NULL DEFAULT '{}',
    error         TEXT,
    result        TEXT,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    finished_at   INTEGER,                       -- NULL: QUEUED or RUNNING
    updated_at    INTEGER NOT NULL,
    cleaned_at    INTEGER                        -- when cleanup deleted the file
) STRICT;

CREATE UNIQUE INDEX imports_once ON imports (sha256, type, coalesce(company_id, ''))
    WHERE once = 1 AND status NOT IN ('FAILED', 'CANCELLED');
CREATE UNIQUE INDEX imports_exclusive ON imports (scope) WHERE scope IS NOT NULL AND status = 'RUNNING';
CREATE INDEX imports_of_scope ON imports (scope, turn) WHERE scope IS NOT NULL;
CREATE INDEX imports_of_status ON imports (status, id);
CREATE INDEX imports_of_type ON imports (type, id);
CREATE INDEX imports_of_company ON imports (company_id, id) WHERE company_id IS NOT NULL;
CREATE INDEX imports_uncleaned ON imports (finished_at) WHERE finished_at IS NOT NULL AND cleaned_at IS NULL;
CREATE INDEX imports_changed ON imports (updated_at);
CREATE INDEX imports_cleaned ON imports (finished_at) WHERE cleaned_at IS NOT NULL;

-- The ledger: one row per chunk, with its counts.
CREATE TABLE import_chunks (
    import_id    TEXT    NOT NULL,
    number       INTEGER NOT NULL,               -- -1: refused by the reader; less: part of a chunk; the total: the finish job
    job_id       TEXT    NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('waiting', 'done')),
    planned_rows INTEGER NOT NULL,
    rows         INTEGER NOT NULL DEFAULT 0,     -- this and the following: of the recorded attempt
    inserted     INTEGER NOT NULL DEFAULT 0,
    updated      INTEGER NOT NULL DEFAULT 0,
    unchanged    INTEGER NOT NULL DEFAULT 0,
    duplicate    INTEGER NOT NULL DEFAULT 0,
    invalid      INTEGER NOT NULL DEFAULT 0,
    error_count  INTEGER NOT NULL DEFAULT 0,
    finished_at  INTEGER,
    error_groups TEXT    NOT NULL DEFAULT '[]',  -- last, so that the sums are read without these
    notes        TEXT    NOT NULL DEFAULT '{}',
    PRIMARY KEY (import_id, number)
) STRICT;

-- Rows with errors.
CREATE TABLE import_errors (
    import_id  TEXT    NOT NULL,
    chunk      INTEGER NOT NULL,
    row_number INTEGER NOT NULL,
    errors     TEXT    NOT NULL,                 -- JSON: [column, code, reason, value] of each error
    cells      TEXT    NOT NULL,                 -- JSON
    PRIMARY KEY (import_id, chunk, row_number)
) STRICT;

CREATE INDEX import_errors_by_row ON import_errors (import_id, row_number);

-- Every import with its totals in one row, for the store.
CREATE VIEW import_records AS
SELECT i.id, i.type, i.status, i.file_name, i.path, i.sha256, i.size_bytes, i.company_id, i.project_id, i.user_id, i.options,
    -- Chunks that are done stay done, so progress never goes back.
    CASE
        WHEN i.status = 'SUCCEEDED' THEN 100
        WHEN i.total_chunks IS NULL THEN i.planned
        WHEN i.total_chunks = 0 THEN 99
        ELSE 10 + 89 * coalesce(sum(c.number >= 0 AND c.number < i.total_chunks), 0) / i.total_chunks
    END AS progress,
    i.message, i.total_chunks, coalesce(sum(c.number >= 0 AND c.number < i.total_chunks), 0) AS completed_chunks,
    coalesce(sum(c.rows), 0) AS rows, coalesce(sum(c.inserted), 0) AS inserted, coalesce(sum(c.updated), 0) AS updated,
    coalesce(sum(c.unchanged), 0) AS unchanged, coalesce(sum(c.duplicate), 0) AS duplicate,
    coalesce(sum(c.invalid), 0) AS invalid, coalesce(sum(c.error_count), 0) AS error_count,
    i.meta, i.error, i.result, i.created_at, i.started_at, i.finished_at, i.updated_at, i.cleaned_at, i.scope
FROM imports i
LEFT JOIN import_chunks c ON c.import_id = i.id AND c.status = 'done'
GROUP BY i.id;

-- Every import with its totals in one row, for people.
CREATE VIEW all_imports AS
SELECT id, type, status, file_name, path, sha256, size_bytes, company_id, project_id, user_id, options, progress, message,
    total_chunks, completed_chunks, rows, inserted, updated, unchanged, duplicate, invalid, error_count, meta, error, result,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch') AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', cleaned_at / 1e6, 'unixepoch') AS cleaned_at,
    scope
FROM import_records;

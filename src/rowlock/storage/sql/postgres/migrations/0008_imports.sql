-- Imports. JSON is kept as text: PostgreSQL refuses an escaped NUL when it parses JSON. Nothing is counted up: totals are
-- sums over the chunks that are done.

-- One import of one file.
CREATE TABLE rowlock.imports (
    id            uuid PRIMARY KEY,
    type          text NOT NULL,
    status        text NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    file_name     text NOT NULL,
    path          text NOT NULL,
    sha256        text NOT NULL,
    size_bytes    bigint NOT NULL,
    company_id    text,
    project_id    text,
    user_id       text,
    once          boolean NOT NULL,         -- a second import of the same file is a duplicate
    scope         text,                     -- what a replacing import wipes: one import of a scope runs at a time
    turn          bigint,                   -- order in which the imports of the scope started
    parent_job_id uuid NOT NULL,            -- equals the id until the import is resumed before it was planned
    finish_job_id uuid,
    planned       smallint NOT NULL DEFAULT 0, -- progress of planning: 0 to 10
    total_chunks  integer,                  -- null: not planned yet
    message       text,
    options       text NOT NULL,
    meta          text NOT NULL DEFAULT '{}',
    error         text,
    result        text,
    created_at    timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,              -- null: QUEUED or RUNNING
    updated_at    timestamptz NOT NULL,
    cleaned_at    timestamptz               -- when cleanup deleted the file
);
CREATE UNIQUE INDEX imports_once ON rowlock.imports (sha256, type, coalesce(company_id, ''))
    WHERE once AND status NOT IN ('FAILED', 'CANCELLED');
CREATE UNIQUE INDEX imports_exclusive ON rowlock.imports (scope) WHERE scope IS NOT NULL AND status = 'RUNNING';
CREATE INDEX imports_of_scope ON rowlock.imports (scope, turn) WHERE scope IS NOT NULL;
CREATE INDEX imports_of_status ON rowlock.imports (status, id);
CREATE INDEX imports_of_type ON rowlock.imports (type, id);
CREATE INDEX imports_of_company ON rowlock.imports (company_id, id) WHERE company_id IS NOT NULL;
CREATE INDEX imports_uncleaned ON rowlock.imports (finished_at) WHERE finished_at IS NOT NULL AND cleaned_at IS NULL;
CREATE INDEX imports_changed ON rowlock.imports (updated_at);
CREATE INDEX imports_cleaned ON rowlock.imports (finished_at) WHERE cleaned_at IS NOT NULL;

-- The ledger: one row per chunk, with its counts.
CREATE TABLE rowlock.import_chunks (
    import_id    uuid NOT NULL,
    number       integer NOT NULL,          -- -1: refused by the reader; less: part of a chunk; the total: the finish job
    job_id       uuid NOT NULL,
    status       text NOT NULL CHECK (status IN ('waiting', 'done')),
    planned_rows bigint NOT NULL,
    rows         bigint NOT NULL DEFAULT 0, -- this and the following: of the recorded attempt
    inserted     bigint NOT NULL DEFAULT 0,
    updated      bigint NOT NULL DEFAULT 0,
    unchanged    bigint NOT NULL DEFAULT 0,
    duplicate    bigint NOT NULL DEFAULT 0,
    invalid      bigint NOT NULL DEFAULT 0,
    error_count  bigint NOT NULL DEFAULT 0,
    error_groups text NOT NULL DEFAULT '[]',
    notes        text NOT NULL DEFAULT '{}',
    finished_at  timestamptz,
    PRIMARY KEY (import_id, number)
);

-- Rows with errors.
CREATE TABLE rowlock.import_errors (
    import_id  uuid NOT NULL,
    chunk      integer NOT NULL,
    row_number bigint NOT NULL,
    errors     text NOT NULL,               -- JSON: [column, code, reason, value] of each error
    cells      text NOT NULL,               -- JSON
    PRIMARY KEY (import_id, chunk, row_number)
);
CREATE INDEX import_errors_by_row ON rowlock.import_errors (import_id, row_number);

-- Every import with its totals in one row, for people and for the store.
CREATE VIEW rowlock.all_imports AS
SELECT i.id, i.type, i.status, i.file_name, i.path, i.sha256, i.size_bytes, i.company_id, i.project_id, i.user_id, i.options,
       -- Chunks that are done stay done, so progress never goes back.
       CASE WHEN i.status = 'SUCCEEDED' THEN 100
            WHEN i.total_chunks IS NULL THEN i.planned
            WHEN i.total_chunks = 0 THEN 99
            ELSE 10 + 89 * c.completed / i.total_chunks END AS progress,
       i.message, i.total_chunks, c.completed AS completed_chunks,
       c.rows, c.inserted, c.updated, c.unchanged, c.duplicate, c.invalid, c.error_count,
       i.meta, i.error, i.result, i.created_at, i.started_at, i.finished_at, i.updated_at, i.cleaned_at, i.scope
FROM rowlock.imports i
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.number >= 0 AND x.number < i.total_chunks)::integer AS completed,
           coalesce(sum(x.rows), 0)::bigint AS rows, coalesce(sum(x.inserted), 0)::bigint AS inserted,
           coalesce(sum(x.updated), 0)::bigint AS updated, coalesce(sum(x.unchanged), 0)::bigint AS unchanged,
           coalesce(sum(x.duplicate), 0)::bigint AS duplicate, coalesce(sum(x.invalid), 0)::bigint AS invalid,
           coalesce(sum(x.error_count), 0)::bigint AS error_count
    FROM rowlock.import_chunks x WHERE x.import_id = i.id AND x.status = 'done') c;

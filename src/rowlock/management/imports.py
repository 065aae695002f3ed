"""Imports: receive files, report progress and errors, resume and cancel."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rowlock.app import Rowlock
from rowlock.errors import BadCursor, CompanyMismatch, DuplicateImport, UnknownImportType
from rowlock.imports.error_report import errors_csv, template_csv
from rowlock.imports.intake import manifest
from rowlock.imports.intake.file_type import clean_name, kind_of
from rowlock.imports.intake.intake import About, Intake
from rowlock.imports.intake.upload import Incoming, Received, size_max
from rowlock.imports.load.stopped import with_stopped
from rowlock.jobs.payload import loads
from rowlock.management.company_scope import CompanyScope
from rowlock.management.endpoint import Parameter, get, post
from rowlock.management.parameters import (
    CursorParameter,
    ImportIdParameter,
    ImportStatusFilter,
    LimitParameter,
    no_import,
)
from rowlock.management.schemas.base import Limit, Name
from rowlock.management.schemas.imports import (
    ChunkSchema,
    ImportErrorsSchema,
    ImportSchema,
    ImportsSchema,
    ImportTypeSchema,
    ImportTypesSchema,
    ImportWholeSchema,
    RowErrorSchema,
)
from rowlock.management.schemas.requests import ImportNamedRequest
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.storage.import_rows import joined_parts
from rowlock.storage.imports import (
    Added,
    ChunkRecord,
    ChunkStatus,
    ErrorPage,
    ImportId,
    ImportRecord,
    ImportStatus,
)
from rowlock.storage.records import JobFilter, JobId, Status

_REPEATS_LOOKED_AT = 200  # newest queued and running imports searched for a repeat; people click twice at once
_JOBS_LOOKED_AT = 500  # read at a time
_ROW_MAX = 2**31 - 1
_ERRORS_SHOWN = 100  # with the import itself; import_errors returns the others


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row with errors."""

    row: int
    cells: Sequence[str]
    errors: Sequence[RowErrorSchema]


@dataclass(frozen=True, slots=True)
class ErrorRows:
    """Rows with errors, below the columns of their file."""

    columns: Sequence[str]
    rows: Sequence[BadRow]
    next_row: int | None


@dataclass(frozen=True, slots=True)
class FileType:
    """How a file would be imported: its import type, None if the manifest does not name one, and the size limit."""

    type: str | None
    bytes_max: int


class Imports(CompanyScope):
    """Queries and commands about imports; with a company, only that company's."""

    async def import_file(
        self,
        path: Path,
        *,
        type: str | None = None,
        sheet: str | None = None,
        company_id: str | None = None,
        project_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        sent: Callable[[int], None] | None = None,
    ) -> ImportSchema:
        """Import a local file, which stays in place. `sent` is called with the number of bytes just read."""
        return await self.arrivals.here(path, About(type, sheet, company_id, project_id, None, force, dry_run), sent)

    @post(
        "/api/v1/imports/xlsx",
        "imports",
        "Import a file of the import folder",
        fails=(404, 409, 413, 415),
        status=202,
        body=ImportNamedRequest,
    )
    async def import_named(
        self,
        file_name: str,
        *,
        type: str | None = None,
        sheet: str | None = None,
        company_id: str | None = None,
        project_id: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> ImportSchema:
        """A workbook or a CSV file, by its name; the file stays there. The response is that of the uploads."""
        return await self.arrivals.named(file_name, About(type, sheet, company_id, project_id, None, force, dry_run))

    @get("/api/v1/import-jobs/{import_id}", "imports", "Get an import", fails=(404,))
    async def import_job(self, import_id: ImportIdParameter) -> ImportWholeSchema:
        """Status, progress, totals, chunks and the first 100 errors."""
        record = await self._import(import_id)
        store = self._app.store
        chunks = joined_parts(await store.chunks(record.id))
        page = await self._error_page(record, 0, _ERRORS_SHOWN)
        errors = RowErrorSchema.all_of(page.rows, self._redact)[:_ERRORS_SHOWN]
        failed = await self._failed(record, chunks)
        shown = [ChunkSchema.of(chunk, failed=chunk.job_id in failed) for chunk in chunks]
        return ImportWholeSchema.of(record, self._redact, chunks, errors, chunks=shown)

    async def _failed(self, record: ImportRecord, chunks: Sequence[ChunkRecord]) -> set[JobId]:
        """Return the chunk jobs that are dead letters."""
        waiting = [chunk.job_id for chunk in chunks if chunk.status is not ChunkStatus.DONE]
        if record.status is not ImportStatus.FAILED or not waiting:
            return set()
        failed = set[JobId]()
        for start in range(0, len(waiting), _JOBS_LOOKED_AT):
            ids = waiting[start : start + _JOBS_LOOKED_AT]
            page = await self._app.store.page(JobFilter(Status.FAILED, ids=ids), len(ids))
            failed |= {job.id for job in page.jobs}
        return failed

    @get("/api/v1/import-jobs", "imports", "List imports, newest first")
    async def import_jobs(
        self,
        *,
        type: Annotated[str | None, Parameter("Only imports of this type.", Name | None)] = None,
        status: ImportStatusFilter = None,
        company_id: Annotated[str | None, Parameter("Only imports of this company.", Name | None)] = None,
        limit: LimitParameter = 50,
        cursor: CursorParameter = None,
    ) -> ImportsSchema:
        """In pages: `nextCursor` leads to the next one."""
        word = None if status is None else ImportStatus(status)
        try:
            page = await self._app.store.imports(
                type=type, company_id=self._own(company_id), status=word, limit=limit, cursor=cursor
            )
        except ValueError as error:
            raise BadCursor(str(error)) from None
        found = [ImportSchema.of(record, self._redact) for record in page.imports]
        return ImportsSchema(imports=found, next_cursor=page.next_cursor)

    @get("/api/v1/import-jobs/{import_id}/errors", "imports", "List the errors of an import", fails=(404,))
    async def import_errors(
        self,
        import_id: ImportIdParameter,
        *,
        limit: Annotated[int, Parameter("Maximum number of rows.", Limit)] = 100,
        after_row: Annotated[
            int, Parameter("The nextRow of an earlier page.", Annotated[int, Field(ge=0, le=_ROW_MAX)])
        ] = 0,
    ) -> ImportErrorsSchema:
        """In the order of the file."""
        record = await self._import(import_id)
        page = await self._error_page(record, after_row, limit)
        return ImportErrorsSchema(errors=RowErrorSchema.all_of(page.rows, self._redact), next_row=page.next_row)

    async def import_error_rows(self, import_id: ImportId, *, after_row: int = 0, limit: int = 100) -> ErrorRows:
        """Up to `limit` rows with errors, as in the file.

        Cells of secret columns are hidden, as they are in errors.csv; a row that could not be read may have no cells.
        """
        record = await self._import(import_id)
        page = await self._error_page(record, after_row, limit)
        rows = [BadRow(each.row, each.cells, RowErrorSchema.all_of([each], self._redact)) for each in page.rows]
        return ErrorRows(loads(record.meta).get("header") or [], rows, page.next_row)

    async def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]:
        """Stream the rows with errors as a CSV file: the user's own cells, then row, column and reason."""
        record = await self._import(import_id)

        async def page(after_row: int, limit: int) -> ErrorPage:
            return await self._error_page(record, after_row, limit)

        async for part in errors_csv(loads(record.meta).get("header") or [], page):
            yield part

    async def _error_page(self, record: ImportRecord, after_row: int, limit: int) -> ErrorPage:
        page = await self._app.store.import_errors(record.id, after_row=after_row, limit=limit)
        return with_stopped(record, page, after_row, limit)

    @post("/api/v1/import-jobs/{import_id}/resume", "imports", "Resume an import", fails=(404, 409))
    async def resume_import(self, import_id: ImportIdParameter) -> ImportWholeSchema:
        """Resumes a failed or cancelled import: only unfinished chunks run again."""
        record = await self._import(import_id)
        self.arrivals.check_company(record.type)
        await self._app.imports.resume(record.id)
        return await self.import_job(import_id)

    async def import_again(
        self, import_id: ImportId, *, user_id: str | None = None, force: bool = False
    ) -> ImportSchema:
        """Import the stored file of an earlier import, such as a dry run, without uploading it again.

        Raises DuplicateImport if the file was imported before, unless `force` and that import has ended;
        ImportNotResumable if cleanup has deleted the file.
        """
        return await self.arrivals.again(await self._import(import_id), user_id, force)

    async def import_kept(self, import_id: ImportId) -> bool:
        """Return whether an import's file is still stored; after cleanup it cannot be resumed or imported again."""
        return (await self._import(import_id)).cleaned_at is None

    @post("/api/v1/import-jobs/{import_id}/cancel", "imports", "Cancel an import", fails=(404, 409))
    async def cancel_import(self, import_id: ImportIdParameter) -> ImportWholeSchema:
        """Rows of finished chunks stay in the table; no further chunk is loaded."""
        await self._app.imports.cancel((await self._import(import_id)).id)
        return await self.import_job(import_id)

    @get("/api/v1/import-types", "imports", "List import types")
    async def import_types(self) -> ImportTypesSchema:
        """With the accepted names and formats of their columns."""
        return ImportTypesSchema(types=[ImportTypeSchema.of(each) for _, each in sorted(self._app.importers.items())])

    async def import_type_of(self, file_name: str) -> FileType:
        """How a file of this name would be imported; raises FileRefused if it cannot be."""
        settings = self._app.settings
        name = clean_name(file_name)
        kind = kind_of(name)
        entry = manifest.load(settings.import_manifest).entry(name)
        known = entry.type if entry is not None and entry.type in self._app.importers else None
        return FileType(known, size_max(kind, settings))

    async def import_template(self, name: str) -> bytes:
        """Return an empty CSV file with the columns of an import type."""
        found = self._app.importers.get(name)
        if found is None:
            known = ", ".join(sorted(self._app.importers)) or "none"
            raise UnknownImportType(f"no importer is called {name!r}; known types: {known}")
        return template_csv([field.headers[0] for field in found.fields])

    @property
    def arrivals(self) -> Arrivals:
        """The intake of files."""
        return Arrivals(self._app, self._company_id)

    async def _import(self, import_id: ImportId) -> ImportRecord:
        record = await self._app.store.get_import(import_id)
        if record is None or self._company_id not in (None, record.company_id):
            raise no_import(import_id)
        return record


class Arrivals:
    """Takes in files to import; with a company, for that company."""

    def __init__(self, app: Rowlock, company_id: str | None) -> None:
        self._app = app
        self._company_id = company_id
        self._redact = app.redact if company_id is None else app.redact.company()
        self._intake = Intake(app)

    async def here(self, path: Path, about: About, sent: Callable[[int], None] | None = None) -> ImportSchema:
        """Import a local file, which stays in place."""
        return self._schema(await self._intake.receive_file(path, self._own(about), sent or (lambda _: None)))

    async def named(self, file_name: str, about: About, reserved: RequestAnswer | None = None) -> ImportSchema:
        """Import a file from the import folder; it stays there.

        With a `reserved` id (see `control.requests`), a second try returns the import of the first.
        """
        import_id = None if reserved is None else reserved.job_id
        if import_id is not None and reserved is not None and reserved.state is RequestState.BROKEN_OFF:
            found = await self._app.store.get_import(import_id)
            if found is not None:
                return ImportSchema.of(found, self._redact)
        return self._schema(
            await self._intake.receive_named(file_name, self._own(about), import_id, own_folder=self._company_id)
        )

    async def again(self, record: ImportRecord, user_id: str | None, force: bool) -> ImportSchema:
        """Import the stored file of an earlier import; for `force` see `received`."""
        self.check_company(record.type)
        if force:
            sheet = loads(record.options).get("sheet")
            await self._alone(record.file_name, record.sha256, record.type, record.company_id, sheet)
        return self._schema(await self._intake.receive_again(record, user_id=user_id, force=force))

    async def incoming(self, file_name: str, about: About) -> Incoming:
        """Open an upload; raises early if the file could not be imported anyway."""
        own = self._own(about)
        own.check()
        incoming = self._intake.open(file_name)
        if about.type is not None:
            await self._intake.accepting(own, incoming.name)
        return incoming

    async def received(self, received: Received, about: About, *, by_hand: bool = False) -> ImportSchema:
        """Import an uploaded file.

        People press buttons twice: with `by_hand`, a forced import raises DuplicateImport while the same file is being
        imported.
        """
        about = self._own(about)
        if by_hand and about.force and not about.dry_run:
            found, sheet = self._intake.importer(about, received.name)
            await self._alone(received.name, received.sha256, found.name, about.company_id, sheet)
        return self._schema(await self._intake.add(received, about))

    async def _alone(self, name: str, sha256: str, type: str, company_id: str | None, sheet: str | None) -> None:
        """Raise DuplicateImport if the same file is queued or running; two calls in the same instant may both pass."""
        for status in (ImportStatus.QUEUED, ImportStatus.RUNNING):  # in this order: a queued one may start meanwhile
            page = await self._app.store.imports(
                type=type, company_id=company_id, status=status, limit=_REPEATS_LOOKED_AT
            )
            for each in page.imports:
                options = loads(each.options)
                same = (each.sha256, each.company_id, options.get("sheet")) == (sha256, company_id, sheet)
                if same and not options.get("dryRun"):
                    raise DuplicateImport(f"{name} is being imported already, as {each.id}", existing_import_id=each.id)

    def _own(self, about: About) -> About:
        """Return `about` with the caller's company; raises CompanyMismatch if it names another."""
        if self._company_id is not None and about.company_id not in (None, self._company_id):
            raise CompanyMismatch(f"company {self._company_id!r} asks, and names another; nothing was imported")
        if about.type is not None:
            self.check_company(about.type)
        return replace(about, company_id=self._company_id or about.company_id, scoped=self._company_id is not None)

    def check_company(self, type_name: str) -> None:
        """Raise CompanyMismatch if a company asks for an importer whose rows belong to no company."""
        found = self._app.importers.get(type_name)
        if self._company_id is not None and found is not None:
            found.check_scoped()

    def _schema(self, added: Added) -> ImportSchema:
        return ImportSchema.of(added.record, self._redact)

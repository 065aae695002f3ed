"""Imports: files in, progress and errors out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

from rowlock.app import Rowlock
from rowlock.desk.sight import Sight
from rowlock.errors import BadCursor, CompanyMismatch, DuplicateImport, ImportNotFound, UnknownImportType
from rowlock.imports import manifest
from rowlock.imports.intake import About, Intake
from rowlock.imports.report import errors_csv, template_csv
from rowlock.imports.signature import clean_name, kind_of
from rowlock.imports.upload import Incoming, Received, size_max
from rowlock.jobs.payload import loads
from rowlock.shapes import Shape, chunk_shape, error_shapes, import_shape, import_type_shape
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.storage.imports import Added, ErrorPage, ImportId, ImportRecord, ImportStatus

_REPEATS_LOOKED_AT = 200  # the newest that wait and that run: whoever presses twice does it at once
_ERRORS_SHOWN = 100  # with the import itself; the others are a page away


class Imports(Sight):
    """What may be asked about imports; with a company, about that company's."""

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
    ) -> Shape:
        """Import a file that is here; it stays where it is. `sent` is told how many more bytes were taken."""
        return await self.arrivals.here(path, About(type, sheet, company_id, project_id, None, force, dry_run), sent)

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
    ) -> Shape:
        """Import a file from the import folder, by its name; it stays there."""
        return await self.arrivals.named(file_name, About(type, sheet, company_id, project_id, None, force, dry_run))

    async def import_job(self, import_id: ImportId) -> Shape:
        """One import, whole: its chunks, and its first errors."""
        record = await self._import(import_id)
        store = self._app.store
        chunks = await store.chunks(record.id)
        page = await store.import_errors(record.id, after_row=0, limit=_ERRORS_SHOWN)
        errors = error_shapes(page.rows, self._app.redact)[:_ERRORS_SHOWN]
        shape = import_shape(record, self._app.redact, chunks, errors)
        return shape | {"chunks": [chunk_shape(chunk) for chunk in chunks]}

    async def import_jobs(
        self,
        *,
        type: str | None = None,
        status: ImportStatus | str | None = None,
        company_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Shape:
        """Imports, newest first: {imports, nextCursor}."""
        word = None if status is None else ImportStatus(status)
        try:
            page = await self._app.store.imports(
                type=type, company_id=self._own(company_id), status=word, limit=limit, cursor=cursor
            )
        except ValueError as error:
            raise BadCursor(str(error)) from None
        shapes = [import_shape(record, self._app.redact) for record in page.imports]
        return {"imports": shapes, "nextCursor": page.next_cursor}

    async def import_errors(self, import_id: ImportId, *, after_row: int = 0, limit: int = 100) -> Shape:
        """The errors of up to `limit` rows, in the order of the file: {errors, nextRow}."""
        record = await self._import(import_id)
        page = await self._app.store.import_errors(record.id, after_row=after_row, limit=limit)
        return {"errors": error_shapes(page.rows, self._app.redact), "nextRow": page.next_row}

    async def import_error_rows(self, import_id: ImportId, *, after_row: int = 0, limit: int = 100) -> Shape:
        """Up to `limit` rows with errors, as the file has them: {columns, rows: [{row, cells, errors}], nextRow}.

        Cells of secret columns are hidden, as they are in errors.csv; a row that could not be read may have no cells.
        """
        record = await self._import(import_id)
        page = await self._app.store.import_errors(record.id, after_row=after_row, limit=limit)
        rows = [
            {"row": each.row, "cells": list(each.cells), "errors": error_shapes([each], self._app.redact)}
            for each in page.rows
        ]
        return {"columns": loads(record.meta).get("header") or [], "rows": rows, "nextRow": page.next_row}

    async def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]:
        """The rows with errors as a CSV file, piece by piece: the user's own cells, then row, column and reason."""
        record = await self._import(import_id)
        store = self._app.store

        async def page(after_row: int, limit: int) -> ErrorPage:
            return await store.import_errors(record.id, after_row=after_row, limit=limit)

        async for part in errors_csv(loads(record.meta).get("header") or [], page):
            yield part

    async def resume_import(self, import_id: ImportId) -> Shape:
        """Let a failed or cancelled import go on: only what is not done is done."""
        await self._app.imports.resume((await self._import(import_id)).id)
        return await self.import_job(import_id)

    async def import_again(self, import_id: ImportId, *, user_id: str | None = None, force: bool = False) -> Shape:
        """Import the file of an earlier import for real, of a dry run say, without sending it again.

        The same file twice is a duplicate here too, unless it is forced and the other is over; the file is there as
        long as it is kept.
        """
        return await self.arrivals.again(await self._import(import_id), user_id, force)

    async def import_kept(self, import_id: ImportId) -> bool:
        """Whether the file of an import is still kept: what was swept can neither go on nor be imported again."""
        return (await self._import(import_id)).swept_at is None

    async def cancel_import(self, import_id: ImportId) -> Shape:
        """Stop an import that is not over; chunks that are done stay."""
        await self._app.imports.cancel((await self._import(import_id)).id)
        return await self.import_job(import_id)

    async def import_types(self) -> Shape:
        """Every import type with its columns: {types}."""
        return {"types": [import_type_shape(each) for _, each in sorted(self._app.importers.items())]}

    async def import_type_of(self, file_name: str) -> Shape:
        """What a file of this name would be imported as: {type, sheetName}, null where the manifest does not say, and
        {bytesMax}; raises FileRefused for one that cannot be imported."""
        settings = self._app.settings
        name = clean_name(file_name)
        kind = kind_of(name)
        entry = manifest.load(settings.import_manifest).entry(name)
        known = entry is not None and entry.type in self._app.importers
        return {
            "type": entry.type if entry is not None and known else None,
            "sheetName": entry.sheet if entry is not None and known else None,
            "bytesMax": size_max(kind, settings),
        }

    async def import_template(self, name: str) -> bytes:
        """An empty CSV file with the columns of an import type."""
        found = self._app.importers.get(name)
        if found is None:
            known = ", ".join(sorted(self._app.importers)) or "none"
            raise UnknownImportType(f"no importer is called {name!r}; known types: {known}")
        return template_csv([field.headers[0] for field in found.fields])

    @property
    def arrivals(self) -> Arrivals:
        """Where files come in."""
        return Arrivals(self._app, self._company_id)

    async def _import(self, import_id: ImportId) -> ImportRecord:
        record = await self._app.store.get_import(import_id)
        if record is None or self._company_id not in (None, record.company_id):
            raise ImportNotFound(f"no import has the id {import_id}; retention may have removed it")
        return record


class Arrivals:
    """Files that come in; with a company, for that company."""

    def __init__(self, app: Rowlock, company_id: str | None) -> None:
        self._app = app
        self._company_id = company_id
        self._intake = Intake(app)

    async def here(self, path: Path, about: About, sent: Callable[[int], None] | None = None) -> Shape:
        """Import a file that is here; it stays where it is."""
        return self._told(await self._intake.receive_file(path, self._own(about), sent or (lambda _: None)))

    async def named(self, file_name: str, about: About, reserved: RequestAnswer | None = None) -> Shape:
        """Import a file from the import folder; it stays there.

        With a `reserved` id (see begin_request), a second try finds the import of the first.
        """
        import_id = None if reserved is None else reserved.job_id
        if import_id is not None and reserved is not None and reserved.state is RequestState.BROKEN_OFF:
            found = await self._app.store.get_import(import_id)
            if found is not None:
                return import_shape(found, self._app.redact)
        return self._told(await self._intake.receive_named(file_name, self._own(about), import_id))

    async def again(self, record: ImportRecord, user_id: str | None, force: bool) -> Shape:
        """Import the file of an earlier import, from the bytes that are kept of it; when forced, see `received`."""
        if force:
            sheet = loads(record.options).get("sheet")
            await self._alone(record.file_name, record.sha256, record.type, record.company_id, sheet)
        return self._told(await self._intake.receive_again(record, user_id=user_id, force=force))

    def incoming(self, file_name: str, about: About) -> Incoming:
        """A place for a file that comes over a wire; raises early where it could not be imported anyway."""
        self._own(about).check()
        incoming = self._intake.open(file_name)
        if about.type is not None:
            self._intake.importer(about, incoming.name)
        return incoming

    async def received(self, received: Received, about: About, *, by_hand: bool = False) -> Shape:
        """Import a file that has come over a wire.

        People press buttons twice: what they force `by_hand` is a DuplicateImport while the same is being imported.
        """
        about = self._own(about)
        if by_hand and about.force and not about.dry_run:
            found, sheet = self._intake.importer(about, received.name)
            await self._alone(received.name, received.sha256, found.name, about.company_id, sheet)
        return self._told(await self._intake.add(received, about))

    async def _alone(self, name: str, sha256: str, type: str, company_id: str | None, sheet: str | None) -> None:
        """Raise DuplicateImport where the same file waits or runs; of two that ask in the same instant neither may see
        the other."""
        for status in (ImportStatus.QUEUED, ImportStatus.RUNNING):  # in this order: meanwhile one may begin to run
            page = await self._app.store.imports(
                type=type, company_id=company_id, status=status, limit=_REPEATS_LOOKED_AT
            )
            for each in page.imports:
                options = loads(each.options)
                same = (each.sha256, each.company_id, options.get("sheet")) == (sha256, company_id, sheet)
                if same and not options.get("dryRun"):
                    raise DuplicateImport(f"{name} is being imported already, as {each.id}", existing_import_id=each.id)

    def _own(self, about: About) -> About:
        """What is imported for one company may not name another."""
        if self._company_id is not None and about.company_id not in (None, self._company_id):
            raise CompanyMismatch(f"company {self._company_id!r} asks, and names another; nothing was imported")
        return replace(about, company_id=self._company_id or about.company_id)

    def _told(self, added: Added) -> Shape:
        return import_shape(added.record, self._app.redact)

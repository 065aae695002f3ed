"""Imports through a server: streams files to it, and errors from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rowlock.client.wire import Wire, failure
from rowlock.errors import ImportNotFound
from rowlock.ids import is_uuid
from rowlock.imports.intake.file_type import clean_name, kind_of
from rowlock.imports.intake.upload import file_size, read_file
from rowlock.jobs.registry import checked_name
from rowlock.management import operations
from rowlock.management.schemas.imports import (
    ImportErrorsSchema,
    ImportSchema,
    ImportsSchema,
    ImportTypesSchema,
    ImportWholeSchema,
)
from rowlock.storage.imports import ImportId, ImportStatus

_IMPORTS = "/api/v1/import-jobs"


class Imports:
    """The methods of `rowlock.management.ManagementService` about imports, called on a server."""

    _wire: Wire

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
        """Upload a file and import it; `sent` is called with the bytes just sent, negative if the upload restarts."""
        name = clean_name(path.name)
        family = kind_of(name).family
        size = file_size(path)
        asked = _options(type, sheet, company_id, project_id, force, dry_run) | {"filename": name}
        out, tell = 0, sent or (lambda _: None)

        async def content() -> AsyncIterator[bytes]:
            nonlocal out
            tell(-out)
            out = 0
            async for chunk in read_file(path):
                yield chunk
                out += len(chunk)
                tell(len(chunk))

        path_of_family = f"/api/v1/imports/{family}/upload"
        again = not (force or dry_run)
        return await self._wire.upload(ImportSchema, path_of_family, asked, content, size=size, again=again)

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
        """Import a file from the server's import folder, by its name."""
        given = _options(type, sheet, company_id, project_id, force, dry_run) | {"filename": file_name}
        body = {name: value for name, value in given.items() if value is not None}
        return await self._wire.post(ImportSchema, "/api/v1/imports/xlsx", body)

    async def import_job(self, import_id: ImportId) -> ImportWholeSchema:
        """Return one import with its chunks and its first 100 errors."""
        return await self._wire.get(ImportWholeSchema, _import(import_id))

    async def import_jobs(
        self,
        *,
        type: str | None = None,
        status: ImportStatus | str | None = None,
        company_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ImportsSchema:
        """Imports, newest first: {imports, nextCursor}."""
        word = None if status is None else ImportStatus(status).value
        return await self._wire.get(
            ImportsSchema, _IMPORTS, type=type, status=word, companyId=company_id, limit=limit, cursor=cursor
        )

    async def wait_import(self, import_id: ImportId, seconds: float) -> ImportWholeSchema:
        """Poll an import until it ends or `seconds` pass, and return it."""
        return await operations.wait_import(self, import_id, seconds)  # type: ignore[arg-type]  # a part of the client

    async def import_errors(self, import_id: ImportId, *, after_row: int = 0, limit: int = 100) -> ImportErrorsSchema:
        """The errors of up to `limit` rows, in the order of the file: {errors, nextRow}."""
        return await self._wire.get(ImportErrorsSchema, f"{_import(import_id)}/errors", afterRow=after_row, limit=limit)

    async def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]:
        """Stream the rows with errors as a CSV file."""
        async with self._wire.stream(f"{_import(import_id)}/errors.csv") as answer:
            if not answer.is_success:
                await answer.aread()
                raise failure(answer)
            async for part in answer.aiter_bytes():
                yield part

    async def resume_import(self, import_id: ImportId) -> ImportWholeSchema:
        """Resume a failed or cancelled import; completed chunks are not repeated."""
        return await self._wire.post(ImportWholeSchema, f"{_import(import_id)}/resume")

    async def cancel_import(self, import_id: ImportId) -> ImportWholeSchema:
        """Cancel an import that has not ended; completed chunks stay."""
        return await self._wire.post(ImportWholeSchema, f"{_import(import_id)}/cancel")

    async def import_types(self) -> ImportTypesSchema:
        """Every import type with its columns: {types}."""
        return await self._wire.get(ImportTypesSchema, "/api/v1/import-types")

    async def import_template(self, name: str) -> bytes:
        """Return an empty CSV file with the columns of an import type."""
        part = quote(checked_name(name, "importer"), safe="").replace(".", "%2E")
        return (await self._wire.send("GET", f"/api/v1/import-types/{part}/template.csv")).content


def _options(
    type: str | None, sheet: str | None, company_id: str | None, project_id: str | None, force: bool, dry_run: bool
) -> dict[str, Any]:
    return {
        "type": type,
        "sheetName": sheet,
        "companyId": company_id,
        "projectId": project_id,
        "force": force or None,
        "dryRun": dry_run or None,
    }


def _import(import_id: ImportId) -> str:
    """Return the path of an import; raises ImportNotFound for a malformed id, which could change the path."""
    if not is_uuid(import_id):
        raise ImportNotFound(f"no import has the id {import_id}; retention may have removed it")
    return f"{_IMPORTS}/{import_id}"

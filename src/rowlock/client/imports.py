"""Imports through a server: streams files to it, and errors from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

from rowlock.client.remote import path_of, remote
from rowlock.client.wire import Wire, failure
from rowlock.imports.intake.file_type import clean_name, kind_of
from rowlock.imports.intake.upload import file_size, read_file
from rowlock.jobs.registry import checked_name
from rowlock.management import ManagementService, waiting
from rowlock.management.endpoint import endpoint_of
from rowlock.management.parameters import checked_import
from rowlock.management.schemas.imports import ImportSchema, ImportWholeSchema
from rowlock.storage.imports import ImportId


class Imports:
    """The methods of `rowlock.management.ManagementService` about imports, called on a server."""

    _wire: Wire

    import_job = remote(ManagementService.import_job)
    import_jobs = remote(ManagementService.import_jobs)
    import_errors = remote(ManagementService.import_errors)
    resume_import = remote(ManagementService.resume_import)
    cancel_import = remote(ManagementService.cancel_import)
    import_types = remote(ManagementService.import_types)

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
        return await self._wire.post(ImportSchema, endpoint_of(ManagementService.import_named).path, body)

    async def wait_import(self, import_id: ImportId, seconds: float) -> ImportWholeSchema:
        """Poll an import until it ends or `seconds` pass, and return it."""
        return await waiting.wait_import(self, import_id, seconds)

    async def import_errors_csv(self, import_id: ImportId) -> AsyncGenerator[bytes]:
        """Stream the rows with errors as a CSV file."""
        path = f"/api/v1/import-jobs/{checked_import(import_id)}/errors.csv"
        async with self._wire.stream(path) as answer:
            if not answer.is_success:
                await answer.aread()
                raise failure(answer)
            async for part in answer.aiter_bytes():
                yield part

    async def import_template(self, name: str) -> bytes:
        """Return an empty CSV file with the columns of an import type."""
        path = path_of("/api/v1/import-types/{name}/template.csv", {"name": checked_name(name, "importer")})
        return (await self._wire.send("GET", path)).content


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

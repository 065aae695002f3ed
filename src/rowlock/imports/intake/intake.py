"""Receives files: checks them, records an import and enqueues its parent job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from rowlock.errors import (
    BadPayload,
    DuplicateImport,
    FileRefused,
    ImportNotResumable,
    StoreError,
    UnknownImportType,
)
from rowlock.ids import uuid7
from rowlock.imports.importer import ImportType
from rowlock.imports.intake import folder, manifest, upload
from rowlock.imports.intake.file_type import FileKind, clean_name
from rowlock.imports.jobs import ImportJobs, upload_folder
from rowlock.imports.load.without_transactions import check_possible
from rowlock.jobs.payload import loads
from rowlock.jobs.registry import checked_name
from rowlock.storage.blobs import Blobs
from rowlock.storage.imports import Added, ImportId, ImportRecord, NewImport

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_SHEET_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class About:
    """The caller's options for a file; the manifest supplies `type` and `sheet` if they are None."""

    type: str | None = None
    sheet: str | None = None
    company_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    force: bool = False  # import it even if it was imported before
    dry_run: bool = False  # load nothing, only report what would change
    scoped: bool = False  # the caller acts for this company only

    def check(self) -> None:
        """Raise SettingsError or BadPayload for a value that no store accepts."""
        for what in ("company_id", "project_id", "user_id"):
            if (value := getattr(self, what)) is not None:
                checked_name(value, what)
        if self.sheet is not None and not (0 < len(self.sheet) <= _SHEET_LENGTH_MAX and self.sheet.isprintable()):
            raise BadPayload(f"a sheet's name must be 1 to {_SHEET_LENGTH_MAX} printable characters")


class Intake:
    """Receives files for the importers of one application."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self.blobs = Blobs(app.settings.import_store)

    def open(self, file_name: str) -> upload.Incoming:
        """Return an upload to write the file's bytes to; raises FileRefused for a name that cannot be imported."""
        return upload.Incoming(self.blobs, clean_name(file_name), self._app.settings)

    async def receive(
        self,
        chunks: AsyncIterator[bytes],
        file_name: str,
        about: About,
        seen: Callable[[int], None] = lambda _: None,
        import_id: ImportId | None = None,
    ) -> Added:
        """Receive a whole file from a stream and record its import; see `add`."""
        about.check()
        async with self.open(file_name) as incoming:
            await self.accepting(about, incoming.name)
            return await self.add(await upload.receive(chunks, incoming, seen), about, import_id)

    async def receive_file(self, path: Path, about: About, seen: Callable[[int], None] = lambda _: None) -> Added:
        """Import a copy of a local file."""
        return await self.receive(upload.read_file(path), path.name, about, seen)

    async def receive_named(
        self, name: str, about: About, import_id: ImportId | None = None, own_folder: str | None = None
    ) -> Added:
        """Import a copy of a file in the import folder, or in a company's folder inside it (`own_folder`)."""
        root = self._app.settings.import_folder
        path = folder.find(root if own_folder is None else folder.of_company(root, own_folder), name)
        return await self.receive(upload.read_file(path), name, about, import_id=import_id)

    async def receive_again(self, record: ImportRecord, *, user_id: str | None, force: bool) -> Added:
        """Import the stored file of an earlier import, such as a dry run; see `add`.

        Raises ImportNotResumable if the file was deleted.
        """
        about = About(
            record.type, loads(record.options).get("sheet"), record.company_id, record.project_id, user_id, force
        )
        path = self.blobs.scratch / uuid7()
        try:
            await self.blobs.linked(record.path, path)
            kind = FileKind(record.path.rpartition("/source.")[2])
            received = upload.Received(path, record.file_name, kind, record.sha256, record.size_bytes)
            return await self.add(received, about)
        except FileNotFoundError:
            raise ImportNotResumable(f"the file of import {record.id} was deleted; upload it again") from None
        finally:
            path.unlink(missing_ok=True)

    async def add(self, received: upload.Received, about: About, import_id: ImportId | None = None) -> Added:
        """Record an import of this file and its parent job, both or neither; raises DuplicateImport."""
        about.check()
        found, sheet = await self.accepting(about, received.name)
        import_id = import_id or uuid7()
        path = f"{upload_folder(import_id)}/source.{received.kind.value}"
        new = NewImport(
            id=import_id,
            type=found.name,
            file_name=received.name,
            path=path,
            sha256=received.sha256,
            size_bytes=received.size_bytes,
            company_id=about.company_id,
            project_id=about.project_id,
            user_id=about.user_id,
            options=json.dumps({"sheet": sheet, "dryRun": about.dry_run, "force": about.force}),
            once=not (about.force or about.dry_run),
            scope=None if about.dry_run else found.scope(about.company_id),
        )
        engine = self._app.engine
        jobs = ImportJobs(engine.builder, engine.settings.import_queue)
        job = jobs.parent(found, import_id, about.company_id)._replace(id=import_id)
        await self.blobs.put_file(path, received.path)
        try:
            added = await self._app.store.add_import(new, job)
        except (StoreError, asyncio.CancelledError):
            raise  # the import may still have been recorded: keep the file until that is certain
        except BaseException:
            await self.blobs.delete(upload_folder(import_id))
            raise
        if not added.created and added.record.id != import_id:
            await self.blobs.delete(upload_folder(import_id))
            raise DuplicateImport(
                f"{received.name} was imported before, as {added.record.id} on {added.record.created_at:%Y-%m-%d}; "
                "use --force to import it again",
                existing_import_id=added.record.id,
            )
        return added

    async def accepting(self, about: About, file_name: str) -> tuple[ImportType, str | None]:
        """Like `importer`, but also raises FileRefused if this store cannot load rows as the importer asks."""
        found, sheet = self.importer(about, file_name)
        await check_possible(self._app.store, found)
        return found, sheet

    def importer(self, about: About, file_name: str) -> tuple[ImportType, str | None]:
        """Return the import type and the sheet; the caller's values override the manifest.

        Raises UnknownImportType, CompanyMismatch, or FileRefused if the importer needs a company.
        """
        known = self._app.importers
        listed = manifest.load(self._app.settings.import_manifest)
        entry = listed.entry(file_name)
        name = about.type or (entry.type if entry is not None else None)
        if name is None:
            raise UnknownImportType(
                f"{file_name}: no type was given, and the manifest has no entry for it; known types: {_names(known)}"
                + _nearest(Path(file_name).name.split(".")[0], known)
            )
        if name not in known:
            whose = f"{listed.file}, entry {entry.name!r}: " if entry is not None and not about.type else ""
            raise UnknownImportType(
                f"{whose}no importer is called {name!r}; known types: {_names(known)}{_nearest(name, known)}"
            )
        if about.scoped:
            known[name].check_scoped()
        if known[name].company and not (about.company_id or known[name].importer.default_company):
            raise FileRefused(
                f"imports of {name!r} belong to a company: name it (companyId, --company)", code="company_required"
            )
        listed_sheet = entry.sheet if entry is not None and entry.type == name else None
        return known[name], about.sheet or listed_sheet


def _names(known: Mapping[str, ImportType]) -> str:
    return ", ".join(sorted(known)) if known else "none"


def _nearest(name: str, known: Mapping[str, ImportType]) -> str:
    near = get_close_matches(name.lower(), {each.lower(): each for each in known}, 1)
    found = {each.lower(): each for each in known}.get(near[0]) if near else None
    return f"; did you mean {found!r}?" if found else ""

"""Delete files that are no longer needed: those of ended imports and of interrupted uploads."""

from __future__ import annotations

import time

from rowlock.errors import RowlockError
from rowlock.ids import is_uuid
from rowlock.imports.import_context import ImportContext
from rowlock.imports.jobs import IMPORTS_FOLDER, upload_folder
from rowlock.jobs.payload import loads
from rowlock.storage.imports import ImportId, ImportRecord

_BATCH = 100
_STALE_SECONDS = 86_400.0


async def clean(context: ImportContext, record: ImportRecord) -> None:
    """Delete the files and the staging table of an ended import, which can no longer be resumed."""
    store = context.engine.store
    if await store.clean_import(record.id, errors_kept=context.engine.settings.import_errors_max):
        if staged := loads(record.meta).get("staged"):
            async with store.transaction() as transaction:
                await transaction.drop_table(staged)
        await context.blobs.delete(upload_folder(record.id))


async def clean_chunks(context: ImportContext, record: ImportRecord) -> None:
    """Delete the chunk files of an ended dry run; the uploaded file stays, as it may be imported for real."""
    if folder := loads(record.meta).get("folder"):
        await context.blobs.delete(folder)


async def clean_ended(context: ImportContext) -> None:
    """Delete the files of imports that succeeded, and of other ended imports after `keep_import_file_days`."""
    days = context.engine.settings.keep_import_file_days
    for record in await context.engine.store.cleanable_imports(days, _BATCH):
        try:
            await clean(context, record)
        except RowlockError as error:
            context.log.warning("import.uncleaned", id=record.id, reason=str(error))


async def clean_forgotten(context: ImportContext) -> int:
    """Delete interrupted uploads and files that no import needs; returns how many."""
    count = await context.blobs.clean_scratch(_STALE_SECONDS)
    now = time.time()  # ids are made from local clocks too; these differ by less than a day
    for name in await context.blobs.folders(IMPORTS_FOLDER):
        if is_uuid(name) and await _forgotten(context, name, now):
            count += await context.blobs.delete(upload_folder(name))
    return count


async def _forgotten(context: ImportContext, import_id: ImportId, now: float) -> bool:
    """Return whether no import needs these files: it was cleaned up, or has no record a day after the upload."""
    record = await context.engine.store.get_import(import_id)
    return now - _made_at(import_id) > _STALE_SECONDS if record is None else record.cleaned_at is not None


def _made_at(import_id: ImportId) -> float:
    """Return when an id was made, in Unix seconds: a UUIDv7 begins with its time."""
    return int(import_id.replace("-", "")[:12], 16) / 1_000

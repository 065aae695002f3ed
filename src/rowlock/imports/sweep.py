"""Files that nobody needs any more: of imports that are over, of uploads that broke off."""

from __future__ import annotations

import time

from rowlock.errors import RowlockError
from rowlock.ids import is_uuid
from rowlock.imports.jobs import IMPORTS_FOLDER, upload_folder
from rowlock.imports.workshop import Workshop
from rowlock.jobs.payload import loads
from rowlock.storage.imports import ImportId, ImportRecord

_BATCH = 100
_STALE_SECONDS = 86_400.0


async def sweep(shop: Workshop, record: ImportRecord) -> None:
    """Remove the files of an import that is over; from here on it cannot be resumed."""
    store = shop.engine.store
    if await store.sweep_import(record.id, errors_kept=shop.engine.settings.import_errors_max):
        if staged := loads(record.meta).get("staged"):
            async with store.transaction() as transaction:
                await transaction.drop_table(staged)
        await shop.blobs.delete(upload_folder(record.id))


async def sweep_chunks(shop: Workshop, record: ImportRecord) -> None:
    """Remove the chunks of a dry run that is over, not its file: that may be imported for real."""
    if folder := loads(record.meta).get("folder"):
        await shop.blobs.delete(folder)


async def sweep_ended(shop: Workshop) -> None:
    """Remove the files of imports that succeeded, and of those that nobody has resumed or repeated for long."""
    days = shop.engine.settings.keep_import_file_days
    for record in await shop.engine.store.sweepable_imports(days, _BATCH):
        try:
            await sweep(shop, record)
        except RowlockError as error:
            shop.log.warning("import.unswept", id=record.id, reason=str(error))


async def sweep_forgotten(shop: Workshop) -> int:
    """Remove what nobody will come back for, and count it: files half received, and those without an import."""
    count = await shop.blobs.sweep_scratch(_STALE_SECONDS)
    now = time.time()  # as ids are made; a day is more than clocks differ
    for name in await shop.blobs.folders(IMPORTS_FOLDER):
        if is_uuid(name) and await _forgotten(shop, name, now):
            count += await shop.blobs.delete(upload_folder(name))
    return count


async def _forgotten(shop: Workshop, import_id: ImportId, now: float) -> bool:
    """Whether files have no import that may need them: whoever was to remove them has died, or never began one."""
    record = await shop.engine.store.get_import(import_id)
    return now - _made_at(import_id) > _STALE_SECONDS if record is None else record.swept_at is not None


def _made_at(import_id: ImportId) -> float:
    """When an id was made, in seconds: it begins with that."""
    return int(import_id.replace("-", "")[:12], 16) / 1_000

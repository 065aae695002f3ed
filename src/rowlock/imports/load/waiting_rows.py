"""Rows that wait for the finish job, because they refer to rows of their own table that another chunk may load.

The transaction of a chunk that records its line in the ledger also records the file that keeps them.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rowlock.errors import ImportFault
from rowlock.imports.read.source import ROW
from rowlock.jobs.payload import loads
from rowlock.storage.blobs import Blobs
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportId
from rowlock.storage.references import FOREIGN_KEY
from rowlock.storage.tables import Loaded

if TYPE_CHECKING:
    import polars as pl

    from rowlock.imports.run import Run

WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waiting rows of a chunk, in a file of the import store."""

    path: str
    rows: int


async def keep(blobs: Blobs, path: str, frames: Sequence[pl.DataFrame]) -> Waiting | None:
    """Write these rows to a file; returns None and writes no file if there are none."""
    import polars as pl

    if not any(frame.height for frame in frames):
        return None
    frame = pl.concat(frames, how="vertical_relaxed")
    data = io.BytesIO()
    await asyncio.to_thread(frame.write_ipc, data)
    await blobs.put(path, data.getvalue())
    return Waiting(path, frame.height)


@dataclass(frozen=True, slots=True)
class Found:
    """The waiting rows of an import, and the cells that they were made of."""

    frame: pl.DataFrame
    cells: pl.DataFrame


async def found(store: Store, blobs: Blobs, import_id: ImportId, chunk_path: Any) -> Found | None:
    """Return what waits after all chunks are done, None if nothing does; `chunk_path(index)` is the file of a chunk.

    Raises ImportFault if a file is lost or damaged.
    """
    import polars as pl

    from rowlock.imports.read.partition import read_chunk

    frames, cells = [], []
    for chunk in await store.chunks(import_id):
        kept = loads(chunk.notes).get(WAITING)
        if kept is None:
            continue
        try:
            frame = await asyncio.to_thread(pl.read_ipc, await blobs.get(kept["path"]))
            own = await asyncio.to_thread(read_chunk, await blobs.get(chunk_path(chunk.index)))
        except (ValueError, OSError) as error:
            raise ImportFault(
                f"rows of chunk {chunk.index} of import {import_id} are lost or damaged ({error}): upload the file "
                f"again"
            ) from error
        frames.append(frame)
        cells.append(own.filter(pl.col(ROW).is_in(frame[ROW].implode())))
    if not frames:
        return None
    return Found(pl.concat(frames, how="vertical_relaxed"), pl.concat(cells, how="vertical_relaxed"))


async def load(run: Run, frame: pl.DataFrame) -> Loaded:
    """Load rows, and retry those with missing references until none of them can be loaded."""
    import polars as pl

    inserted = updated = unchanged = 0
    refused = []
    while True:
        loaded = await run._load(frame)
        early = [one.row for one in loaded.refused if one.code == FOREIGN_KEY]
        if run.dry_run or not early or not (loaded.inserted or loaded.updated):
            break
        inserted, updated = inserted + loaded.inserted, updated + loaded.updated
        unchanged += loaded.unchanged
        refused += [one for one in loaded.refused if one.code != FOREIGN_KEY]
        frame = frame.filter(pl.col(ROW).is_in(early))
    return replace(
        loaded,
        inserted=inserted + loaded.inserted,
        updated=updated + loaded.updated,
        unchanged=unchanged + loaded.unchanged,
        refused=[*refused, *loaded.refused],
    )

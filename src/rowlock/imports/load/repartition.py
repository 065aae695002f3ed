"""Repartition rows by a key that is known only after a hook has parsed the rows or the model has checked them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl

from rowlock.imports.check.checkers import checker
from rowlock.imports.importer import ImportType
from rowlock.imports.read.partition import Splitter, named_cells, read_chunk
from rowlock.imports.read.plan_request import Found
from rowlock.imports.read.source import ROW
from rowlock.imports.run import Run, hooked

_HASH = "key"


async def resplit(
    run: Run, declared: ImportType, found: Found, scratch: Path, chunk_bytes: int, rows_max: int | None
) -> Found:
    """Return the same rows in about as many chunks, split by key; a bad row may be in any of them."""
    count = len(found.chunks)
    if count <= 1:
        return found
    folder = scratch / "by-key"
    folder.mkdir()
    headers = {name: found.header[index] for name, index in found.columns.items()}
    with Splitter(str(folder), count, chunk_bytes, sys.maxsize, rows_max) as splitter:
        for chunk in found.chunks:
            cells = await asyncio.to_thread(lambda: read_chunk(Path(chunk.path).read_bytes()))  # noqa: B023 - awaited
            frame = named_cells(cells, found.columns, found.typed)
            frame = await hooked("parse", frame, run)
            hashes = await asyncio.to_thread(_hashes, declared, frame, headers, found.typed)
            by_row = cells.select(ROW).join(hashes, on=ROW, how="left", maintain_order="left")
            key = by_row.select(pl.coalesce(_HASH, pl.col(ROW).cast(pl.UInt64))).to_series()
            await asyncio.to_thread(splitter.add_by_hash, cells, key)
        return replace(found, chunks=await asyncio.to_thread(splitter.chunks))


def _hashes(declared: ImportType, frame: pl.DataFrame, headers: dict[str, str], typed: bool) -> pl.DataFrame:
    good = checker(declared).check(frame, headers, typed=typed, errors_max=0).good
    key = good.select(field.name for field in declared.partition)
    return good.select(ROW, key.hash_rows(seed=0).alias(_HASH))

"""Splitting by a key that only the model can tell: in the worker, after the rows were read and checked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl

from rowlock.imports.checking.checkers import checker
from rowlock.imports.importer import ImportType
from rowlock.imports.order import Found
from rowlock.imports.source import ROW
from rowlock.imports.split import Splitter, named_cells, read_chunk

_PART = "part"


def resplit(declared: ImportType, found: Found, scratch: Path) -> Found:
    """The same rows in as many chunks, those with the same key together; a bad row may go anywhere."""
    count = len(found.chunks)
    if count <= 1:
        return found
    folder = scratch / "by-key"
    folder.mkdir()
    key = [field.name for field in declared.partition]
    headers = {name: found.header[index] for name, index in found.columns.items()}
    with Splitter(str(folder), count, 0, sys.maxsize) as splitter:
        for chunk in found.chunks:
            cells = read_chunk(Path(chunk.path).read_bytes())
            checked = checker(declared).check(
                named_cells(cells, found.columns, found.typed), headers, typed=found.typed, errors_max=0
            )
            hashes = checked.good.select(ROW, checked.good.select(key).hash_rows(seed=0).alias(_PART))
            part = cells.select(ROW).join(hashes, on=ROW, how="left", maintain_order="left")
            splitter.add_by_hash(cells, part.select(pl.coalesce(_PART, pl.col(ROW).cast(pl.UInt64))).to_series())
        return replace(found, chunks=splitter.chunks())

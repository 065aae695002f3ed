"""Chunk files: each row is in exactly one, and none is much larger than requested."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from rowlock.imports.read.partition import Splitter, read_chunk
from rowlock.imports.read.source import ROW

CHUNK_BYTES = 1 << 16


def _rows(first: int, count: int, columns: int) -> pl.DataFrame:
    """Many cells, each of a single character: the places of the texts take more room than the texts."""
    return pl.DataFrame(
        [pl.int_range(first, first + count, dtype=pl.UInt32, eager=True).alias(ROW)]
        + [pl.repeat("1", count, dtype=pl.String, eager=True).alias(f"c{n}") for n in range(columns)]
    )


@pytest.mark.parametrize("chunks_max", [1_000, 2, 1])
def test_rows_without_a_key_are_split_in_their_order_however_short_their_cells_are(
    tmp_path: Path, chunks_max: int
) -> None:
    with Splitter(str(tmp_path), chunks_max, CHUNK_BYTES, 1 << 30) as splitter:
        for first in (1, 5_001):
            splitter.add(_rows(first, 5_000, 60))
        chunks = splitter.chunks()
    numbers = [read_chunk(Path(chunk.path).read_bytes())[ROW].to_list() for chunk in chunks]
    assert [len(rows) for rows in numbers] == [chunk.rows for chunk in chunks]
    assert [row for rows in numbers for row in rows] == list(range(1, 10_001))
    assert max(Path(chunk.path).stat().st_size for chunk in chunks) <= 3 * CHUNK_BYTES

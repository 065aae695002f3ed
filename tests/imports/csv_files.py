"""Small files of delimited text, and what the reader returns for them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock.imports.read.delimited import DelimitedFile, open_delimited
from rowlock.imports.read.limits import ReadLimits

SMALL = ReadLimits(columns_max=50, cell_chars_max=1_000, unpacked_bytes_max=1 << 20, block_bytes=64 << 10)


@dataclass
class Found:
    """Everything that came out of one file."""

    head: list[tuple[int, tuple[str, ...]]]
    rows: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[tuple[str, ...]]:
        return [cells for _, cells in self.rows]


def read(
    content: bytes | str, *, name: str = "file.csv", limits: ReadLimits = SMALL, header_row: int | None = None
) -> Found:
    """The file's rows, with its first row as the header unless another is named."""
    data = content.encode() if isinstance(content, str) else content
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_open(open_delimited(Path(file.name), name=name, limits=limits), header_row=header_row)


def read_open(source: DelimitedFile, *, header_row: int | None = None, width: int | None = None) -> Found:
    head = [(row.row, row.cells) for row in source.head(20)]
    header = next((cells for row, cells in head if header_row in (None, row)), ())
    below = head[0][0] if header_row is None else header_row
    columns = width or len(header)
    found = Found(head, about=source.about)
    done = 0.0
    for batch in source.batches(below, columns):
        assert batch.frame.columns == ["row", *(f"c{n}" for n in range(columns))]
        assert done <= batch.done <= 1.0
        done = batch.done
        found.rows += [(number, tuple(found)) for number, *found in batch.frame.rows()]
        found.bad += [(record.row, record.code) for record in batch.bad]
        found.reasons += [record.reason for record in batch.bad]
    assert done == 1.0
    found.notices = source.notices
    return found

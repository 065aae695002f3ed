"""The plan request and the plan result: plain data, sent as JSON between the worker and the sandbox."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from rowlock.storage.imports import ChunkResult, Counts, ErrorGroup, ErrorRow, RowError

REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Order:
    """A plan request: which file to read, how to split it, and the limits."""

    path: str
    name: str
    kind: str  # "xlsx" or "csv"
    sheet: str | None
    fields: str  # as written by rowlock.imports.fields.dump
    partition: list[str]  # names of key fields; empty: split by lines
    folder: str  # for the chunk files
    chunk_bytes: int
    chunks_max: int
    errors_max: int
    columns_max: int
    cell_chars_max: int
    unpacked_bytes_max: int
    memory_mb: int
    cpu_seconds: int
    size_bytes: int = 0
    rows_max: int | None = None  # of a chunk; None: only its size is limited

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Order:
        return cls(**orjson.loads(line))


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """A chunk file that the planner wrote."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Found:
    """A plan result: what is in the file, and how it was split."""

    header_row: int
    header: list[str]
    columns: dict[str, int]  # field -> column of the file
    unknown: list[str]
    typed: bool
    about: dict[str, Any]
    notices: list[str]
    rows: int  # bad records included
    chunks: list[ChunkFile]
    bad_rows: int
    bad_groups: list[list[Any]]  # code, count
    bad: list[list[Any]] = field(default_factory=list)  # row, code, reason, cells; only the first ones

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, data: dict[str, Any]) -> Found:
        chunks = [ChunkFile(**chunk) for chunk in data.pop("chunks")]
        return cls(chunks=chunks, **data)

    def refused(self, secret: bool) -> ChunkResult:
        """Return the bad records for the ledger. `secret` redacts all their cells: any of them may hold the secret."""
        return ChunkResult(
            Counts(rows=self.bad_rows, invalid=self.bad_rows),
            [ErrorGroup(None, code, count) for code, count in self.bad_groups],
            [
                ErrorRow(row, [RowError(row, None, code, reason)], [REDACTED] * len(cells) if secret else cells)
                for row, code, reason, cells in self.bad
            ],
        )

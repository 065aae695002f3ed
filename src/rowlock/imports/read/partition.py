"""Chunk files: rows of cells as Arrow, split by the hash of their key or in file order.

part │ part │ … │ sizes of the parts, as JSON │ size of the JSON, 4 bytes      (a part is an Arrow IPC stream)
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import orjson
import polars as pl

from rowlock.errors import FileRefused
from rowlock.imports.fields import Field
from rowlock.imports.read.plan_request import ChunkFile, Order
from rowlock.imports.read.source import ROW
from rowlock.storage.blobs import error_number

_PACKED = {".gz": 6.0, ".xlsx": 3.0}  # approximate bytes of text per byte of the file
_PART = "part"
_HASH = "hash"
_LARGE = 3  # a chunk of more than this many times the requested size is divided
_LARGEST = 6  # a part of it of more than this many times is refused: it would not fit a worker
_SAME_KEY_BYTES = 40 << 20  # limit for rows with one key if rows_max is set: only one of them is loaded
PARTS_MAX = 200
_SPARE = 1.2  # a hash does not divide evenly
_TOGETHER = 4  # larger counts are a multiple of this: run two or four at a time, the last chunks end together
_ROOM_BYTES = 1 << 16
_SIZE_BYTES = 4
_PLACE_BYTES = 8


def chunk_count(size_bytes: int, order: Order) -> int:
    """Return the number of chunks for a file of this size, if it must be known before the file is read."""
    text = size_bytes * _PACKED.get(Path(order.name).suffix.lower(), 1.0)
    count = round(text / order.chunk_bytes)
    if count > _TOGETHER:
        count += -count % _TOGETHER
    return max(1, min(order.chunks_max, count))


class Splitter:
    """Writes rows to chunk files; memory is bounded by one batch."""

    def __init__(self, folder: str, count: int, chunk_bytes: int, bytes_max: int, rows_max: int | None = None) -> None:
        self._folder = Path(folder)
        self._count = count
        self._chunk_bytes = chunk_bytes
        self._room = max(chunk_bytes, _ROOM_BYTES)
        self._largest = max(_LARGEST * self._room, 0 if rows_max is None else _SAME_KEY_BYTES)
        self._bytes_left = bytes_max
        self._rows_max = sys.maxsize if rows_max is None else rows_max
        self._files: list[_File] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Append rows in order to a chunk until it is large enough, then to the next."""
        if self._nothing(frame):
            return
        rows_at_once = max(1, min(self._rows_max, int(self._chunk_bytes * frame.height / _written_bytes(frame))))
        for piece in frame.iter_slices(rows_at_once):
            if not self._files or (self._full(self._files[-1], piece.height) and len(self._files) < self._count):
                self._open()
            self._files[-1].write(piece)

    def add_by_hash(self, frame: pl.DataFrame, key: pl.Series) -> None:
        """Append each row to the chunk that the hash of its key selects."""
        if self._nothing(frame):
            return
        while len(self._files) < self._count:
            self._open()
        if self._count == 1:
            self._files[0].write(frame.with_columns(key.alias(_HASH)))
            return
        for number, rows in _parted(frame.with_columns(key.alias(_HASH)), pl.col(_HASH) % self._count):
            self._files[number].write(rows)

    def chunks(self) -> list[ChunkFile]:
        """Complete the chunk files, divide those that are too large, and return those that have rows."""
        for file in self._files:
            file.end()
        for file in [file for file in self._files if self._too_large(file)]:
            self._divide(file)
        return [ChunkFile(str(file.path), file.rows) for file in self._files if file.rows]

    def _divide(self, large: _File) -> None:
        """Divide a chunk by other bits of the hash, or by lines if there is no key. It is too large because there was
        more text than the file's size suggested, because a few keys have many rows, or because it has more rows than
        a transaction of the store takes. Raises FileRefused if too many rows have the same key."""
        by_rows = math.ceil(large.rows / self._rows_max * _SPARE)
        count = min(PARTS_MAX, max(by_rows, -(-large.size_bytes // self._room)))
        first, before, keyed = len(self._files), 0, False
        for _ in range(count):
            self._open()
        for frame in large.frames():
            by_line = (pl.int_range(pl.len()) + before) * count // large.rows
            before, keyed = before + frame.height, _HASH in frame.columns
            for number, rows in _parted(frame, pl.col(_HASH) // self._count % count if keyed else by_line):
                self._files[first + number].write(rows)
        for file in self._files[first:]:
            file.end()
            if keyed and file.size_bytes > self._largest:
                raise FileRefused(
                    f"{file.rows:,} rows have the same key, which is too many to load together: split the file",
                    code="file_too_large",
                )
        large.forget()

    def _full(self, file: _File, more: int) -> bool:
        return file.size_bytes >= self._chunk_bytes or file.rows + more > self._rows_max

    def _too_large(self, file: _File) -> bool:
        return file.size_bytes > _LARGE * self._room or file.rows > self._rows_max

    def _nothing(self, frame: pl.DataFrame) -> bool:
        """Return whether the frame is empty; raises FileRefused past `bytes_max`, as a small file may repeat texts."""
        self._bytes_left -= int(frame.estimated_size())
        if self._bytes_left < 0:
            raise FileRefused("the file contains far more text than its size suggests: split it", code="file_too_large")
        return frame.is_empty()

    def _open(self) -> None:
        self._files.append(_File(self._folder / f"{len(self._files)}.arrow"))

    def __enter__(self) -> Splitter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.parts: list[int] = []
        self.size_bytes = 0
        self._to = path.open("wb", buffering=0)  # Polars writes to it directly, in parallel with the thread that reads

    def write(self, frame: pl.DataFrame) -> None:
        # Not as string views: a few rows would include all text of their batch.
        before = self._to.tell()
        try:
            frame.write_ipc_stream(self._to, compat_level=pl.CompatLevel.oldest())
        except OSError as error:
            raise OSError(error_number(error), str(error)) from error
        self.parts.append(self._to.tell() - before)
        self.rows += frame.height
        self.size_bytes += self.parts[-1]

    def end(self) -> None:
        sizes = orjson.dumps(self.parts)
        self._to.write(sizes + len(sizes).to_bytes(_SIZE_BYTES, "big"))
        self._to.close()

    def close(self) -> None:
        self._to.close()

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the written parts one by one: together they may not fit in memory."""
        with self.path.open("rb") as file:
            for size in self.parts:
                yield pl.read_ipc_stream(io.BytesIO(file.read(size)))

    def forget(self) -> None:
        self.path.unlink()
        self.rows = 0


def key_cells(frame: pl.DataFrame, key: Sequence[tuple[Field, int | None]], typed: bool) -> pl.DataFrame:
    """Return the key's cells in columns named after their fields; a column that the file lacks is empty."""
    columns = []
    for field, index in key:
        columns.append((pl.lit("") if index is None else pl.col(f"c{index}")).alias(field.name))
        if typed:
            columns.append((pl.lit(0, pl.UInt8) if index is None else pl.col(f"k{index}")).alias(f"{field.name}#kind"))
    return frame.select(ROW, *columns)


def named_cells(cells: pl.DataFrame, columns: Mapping[str, int], typed: bool) -> pl.DataFrame:
    """Return cells in columns named after their fields, with their kinds if the source is typed."""
    wanted = []
    for name, index in columns.items():
        wanted.append(pl.col(f"c{index}").alias(name))
        if typed:
            wanted.append(pl.col(f"k{index}").alias(f"{name}#kind"))
    return cells.select(ROW, *wanted)


def read_chunk(data: bytes) -> pl.DataFrame:
    """Return the rows of a chunk file in the order of the source file; raises ValueError or PolarsError if damaged."""
    return _rows(data).drop(_HASH, strict=False)


class Parts:
    """A chunk file that is loaded in several transactions; rows with the same key stay together."""

    def __init__(self, data: bytes) -> None:
        rows = _rows(data)
        self._hashes: pl.Series | None = None
        if _HASH in rows.columns:
            rows = rows.sort(_HASH, maintain_order=True)  # the same order in every attempt
            self._hashes = rows[_HASH]
        self._cells = rows.drop(_HASH, strict=False)
        self.height = rows.height

    def part(self, start: int, rows: int) -> pl.DataFrame:
        """Return about `rows` rows from `start`: all rows of a key, and at least one key."""
        end = min(start + rows, self.height)
        hashes = self._hashes
        while hashes is not None and 0 < end < self.height and hashes[end] == hashes[end - 1]:
            end += 1
        return self._cells.slice(start, end - start)


def _rows(data: bytes) -> pl.DataFrame:
    view = memoryview(data)
    end = len(data) - _SIZE_BYTES
    begin = end - int.from_bytes(view[end:], "big")
    if begin < 0:
        raise ValueError("the chunk file is cut off")
    sizes = orjson.loads(view[begin:end])
    if sum(sizes) != begin:
        raise ValueError(f"the chunk file has {begin} bytes of parts instead of {sum(sizes)}")
    frames, at = [], 0
    for size in sizes:
        frames.append(pl.read_ipc_stream(io.BytesIO(view[at : at + size])))
        at += size
    return pl.concat(frames)


def _written_bytes(frame: pl.DataFrame) -> int:
    """Estimate the bytes of these rows in a chunk file: each text has its characters and their position."""
    texts = sum(kind == pl.String for kind in frame.dtypes)
    return int(frame.estimated_size()) + _PLACE_BYTES * texts * frame.height


def _parted(frame: pl.DataFrame, part: pl.Expr) -> Iterator[tuple[int, pl.DataFrame]]:
    parts = frame.with_columns(part.alias(_PART)).partition_by(_PART, as_dict=True, include_key=False)
    return ((number, rows) for (number,), rows in parts.items())

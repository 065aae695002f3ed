"""Chunk files: rows of cells as Arrow, split by the hash of their key or as they come.

part │ part │ … │ sizes of the parts, as JSON │ size of that, 4 bytes          (a part is an Arrow IPC stream)
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import orjson
import polars as pl

from rowlock.errors import FileRefused
from rowlock.imports.fields import Field
from rowlock.imports.order import ChunkFile, Order
from rowlock.imports.source import ROW
from rowlock.storage.blobs import error_number

_PACKED = {".gz": 6.0, ".xlsx": 3.0}  # how much more text there is than bytes, about
_PART = "part"
_HASH = "hash"
_LARGE = 3  # a chunk of so many times the size that was asked for is divided
_LARGEST = 6  # and one that is larger still then is refused: it would not fit a worker
_PARTS_MAX = 200
_TOGETHER = 4  # many chunks are a multiple of this: two or four at a time end together, and none is left over
_ROOM_BYTES = 1 << 16
_SIZE_BYTES = 4
_PLACE_BYTES = 8


def chunk_count(size_bytes: int, order: Order) -> int:
    """Into how many chunks a file of this size is split, where that must be known before it is read."""
    text = size_bytes * _PACKED.get(Path(order.name).suffix.lower(), 1.0)
    count = round(text / order.chunk_bytes)
    if count > _TOGETHER:
        count += -count % _TOGETHER
    return max(1, min(order.chunks_max, count))


class Splitter:
    """Writes rows to chunk files; memory is bounded by one batch."""

    def __init__(self, folder: str, count: int, chunk_bytes: int, bytes_max: int) -> None:
        self._folder = Path(folder)
        self._count = count
        self._chunk_bytes = chunk_bytes
        self._room = max(chunk_bytes, _ROOM_BYTES)
        self._bytes_left = bytes_max
        self._files: list[_File] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Append rows as they come, to a chunk until it is large enough, then to the next."""
        if self._nothing(frame):
            return
        rows_at_once = max(1, int(self._chunk_bytes * frame.height / _written_bytes(frame)))
        for piece in frame.iter_slices(rows_at_once):
            if not self._files or (self._files[-1].size_bytes >= self._chunk_bytes and len(self._files) < self._count):
                self._open()
            self._files[-1].write(piece)

    def add_by_hash(self, frame: pl.DataFrame, key: pl.Series) -> None:
        """Append rows, each to the chunk that the hash of its key says."""
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
        """The chunks that have rows, complete."""
        for file in self._files:
            file.end()
        for file in [file for file in self._files if file.size_bytes > _LARGE * self._room]:
            self._divide(file)
        return [ChunkFile(str(file.path), file.rows) for file in self._files if file.rows]

    def _divide(self, large: _File) -> None:
        """A chunk that became too large, because there was more text than the file's size let expect, or because of a
        few keys with many rows: into several, by other bits of the hash; by lines where there is no key."""
        count = min(_PARTS_MAX, -(-large.size_bytes // self._room))
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
            if keyed and file.size_bytes > _LARGEST * self._room:
                raise FileRefused(
                    f"too many rows have the same key: {file.rows:,} would have to be loaded together; split the file",
                    code="file_too_large",
                )
        large.forget()

    def _nothing(self, frame: pl.DataFrame) -> bool:
        """Whether there is nothing to write; raises FileRefused past the bound: a small file can say much, over and
        over."""
        self._bytes_left -= int(frame.estimated_size())
        if self._bytes_left < 0:
            raise FileRefused("the file holds far more text than its size suggests; split it", code="file_too_large")
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
        self._to = path.open("wb", buffering=0)  # Polars writes to it past Python, and so beside the thread that reads

    def write(self, frame: pl.DataFrame) -> None:
        # Not as views: a few rows of a batch would take all of its text along.
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
        """What was written, part by part: all of it may be more than fits."""
        with self.path.open("rb") as file:
            for size in self.parts:
                yield pl.read_ipc_stream(io.BytesIO(file.read(size)))

    def forget(self) -> None:
        self.path.unlink()
        self.rows = 0


def key_cells(frame: pl.DataFrame, key: Sequence[tuple[Field, int | None]], typed: bool) -> pl.DataFrame:
    """The key's cells under the names of their fields; a column that the file lacks is empty everywhere."""
    columns = []
    for field, index in key:
        columns.append((pl.lit("") if index is None else pl.col(f"c{index}")).alias(field.name))
        if typed:
            columns.append((pl.lit(0, pl.UInt8) if index is None else pl.col(f"k{index}")).alias(f"{field.name}#kind"))
    return frame.select(ROW, *columns)


def named_cells(cells: pl.DataFrame, columns: Mapping[str, int], typed: bool) -> pl.DataFrame:
    """Cells under the names of their fields, with their kinds where they have one."""
    wanted = []
    for name, index in columns.items():
        wanted.append(pl.col(f"c{index}").alias(name))
        if typed:
            wanted.append(pl.col(f"k{index}").alias(f"{name}#kind"))
    return cells.select(ROW, *wanted)


def read_chunk(data: bytes) -> pl.DataFrame:
    """The rows of a chunk file, in the order of the file that they came from; ValueError where it is damaged."""
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
    return pl.concat(frames).drop(_HASH, strict=False)


def _written_bytes(frame: pl.DataFrame) -> int:
    """How large a chunk file becomes by these rows, about: beside its characters each text has its place in them."""
    texts = sum(kind == pl.String for kind in frame.dtypes)
    return int(frame.estimated_size()) + _PLACE_BYTES * texts * frame.height


def _parted(frame: pl.DataFrame, part: pl.Expr) -> Iterator[tuple[int, pl.DataFrame]]:
    parts = frame.with_columns(part.alias(_PART)).partition_by(_PART, as_dict=True, include_key=False)
    return ((number, rows) for (number,), rows in parts.items())

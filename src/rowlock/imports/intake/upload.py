"""Receives a file to disk in constant memory, computes its SHA-256 and removes incomplete files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from rowlock.errors import FileRefused
from rowlock.ids import uuid7
from rowlock.imports.intake.file_type import HEAD_BYTES, FileKind, check_head, check_whole, kind_of
from rowlock.settings import Settings
from rowlock.storage.blobs import Blobs, unavailable

_TOGETHER_BYTES = 1_048_576  # per write: a thread call for each small piece would cost more than the write


@dataclass(frozen=True, slots=True)
class Received:
    """A complete file whose name and content agree, still in the scratch folder; `Blobs.put_file` makes it durable."""

    path: Path
    name: str  # as the user calls it
    kind: FileKind
    sha256: str
    size_bytes: int


class Incoming:
    """An upload in progress. At the end of the block its file is removed, unless it was moved to the import store.

    async with Incoming(blobs, "customers.csv", settings) as incoming:
        await incoming.write(data)
        received = await incoming.end()
    """

    def __init__(self, blobs: Blobs, name: str, settings: Settings) -> None:
        self.name = name
        self.kind = kind_of(name)
        self.bytes_max = size_max(self.kind, settings)
        self._blobs = blobs
        self._hash = hashlib.sha256()
        self._size = 0
        self._head = b""
        self._judged = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._saving: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._path = self._blobs.scratch / uuid7()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._saving is not None:  # the thread continues after a cancellation and may yet open the file
            await asyncio.wait([self._saving])
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)  # gone already if it was moved to the import store

    async def write(self, data: bytes) -> None:
        """Add the next bytes; raises FileRefused as soon as the file is too large or contradicts its name."""
        self._size += len(data)
        if self._size > self.bytes_max:
            raise too_large(self.name, self.bytes_max)
        if not self._judged:
            self._head += data[: HEAD_BYTES - len(self._head)]
            if len(self._head) >= HEAD_BYTES:
                self._judge()
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _TOGETHER_BYTES:
            await self._flush()

    async def end(self) -> Received:
        """Finish the file and return it; raises FileRefused if its content contradicts its name."""
        if not self._judged:
            self._judge()
        await self._flush(last=True)
        assert self._path is not None
        await asyncio.to_thread(check_whole, self.kind, self.name, self._path)
        return Received(self._path, self.name, self.kind, self._hash.hexdigest(), self._size)

    def _judge(self) -> None:
        check_head(self.kind, self.name, self._head)
        self._judged, self._head = True, b""

    async def _flush(self, *, last: bool = False) -> None:
        data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        self._saving = asyncio.ensure_future(asyncio.to_thread(self._save, data, last))
        self._saving.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark its error as retrieved
        try:
            await asyncio.shield(self._saving)
        except OSError as error:
            raise unavailable(error) from error

    def _save(self, data: bytes, last: bool) -> None:
        assert self._path is not None
        if self._file is None:
            self._file = self._path.open("xb", buffering=_TOGETHER_BYTES)
        self._hash.update(data)
        self._file.write(data)
        if last:
            self._file.close()  # Blobs.put_file makes it durable


async def receive(
    chunks: AsyncIterator[bytes], incoming: Incoming, seen: Callable[[int], None] = lambda _: None
) -> Received:
    """Write all chunks of a stream; calls `seen` with the size of each."""
    async for chunk in chunks:
        await incoming.write(chunk)
        seen(len(chunk))
    return await incoming.end()


async def read_file(path: Path) -> AsyncIterator[bytes]:
    """Yield a local file's bytes in pieces; raises FileRefused if it cannot be read."""
    try:
        with path.open("rb") as file:
            while data := await asyncio.to_thread(file.read, _TOGETHER_BYTES):
                yield data
    except OSError as error:
        raise _unreadable(path, error) from None


def file_size(path: Path) -> int:
    """Return a local file's size in bytes; raises FileRefused if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> FileRefused:
    return FileRefused(f"{path.name} cannot be read: {error.strerror}", code="file_not_found")


def size_max(kind: FileKind, settings: Settings) -> int:
    """Return the largest size in bytes for a file of this kind."""
    return settings.import_xlsx_bytes_max if kind is FileKind.XLSX else settings.import_csv_bytes_max


def too_large(name: str, bytes_max: int) -> FileRefused:
    return FileRefused(f"{name} is larger than {bytes_max:,} bytes, the limit for its kind", code="file_too_large")

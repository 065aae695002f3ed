"""Reads a file in pieces up to a limit, unpacked if it is gzip."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from rowlock.errors import FileRefused

PIECE_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
_TOGETHER_BYTES = 256 << 10
_WINDOW_BYTES = 512
_SMALL_BYTES = 1_024  # a gzip member with less content takes longer to open than to read
_SMALL_MEMBERS_MAX = 100_000
_PADDING = re.compile(rb"\x00*+")

_BINARY = (
    (b"PK\x03\x04", "a ZIP file or a workbook"),
    (b"PK\x05\x06", "an empty ZIP file"),
    (b"%PDF-", "a PDF"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or encrypted Office file"),
    (GZIP, "a gzip file inside a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip file"),
    (b"Rar!\x1a\x07", "a RAR file"),
    (b"\x7fELF", "a program"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1\x00", "an Arrow file"),
    (b"SQLite format 3\x00", "a SQLite database"),
)
_CONTROLS = bytes(set(range(1, 32)) - {9, 10, 11, 12, 13, 26, 27, 28, 29, 30, 31})


class Packed:
    """A file, unpacked if it is gzip; `position` is the offset in the file itself after the last piece."""

    def __init__(self, path: Path, unpacked_bytes_max: int) -> None:
        self.path = path
        self.size = os.path.getsize(path)
        self.position = 0
        self._bytes_max = unpacked_bytes_max
        with path.open("rb") as file:
            self.gzip = file.read(2) == GZIP

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes from the start; raises FileRefused past the limit or for damaged gzip data."""
        total = 0
        self.position = 0
        for piece in self._members() if self.gzip else self._stored():
            total += len(piece)
            if total > self._bytes_max:
                raise FileRefused(
                    f"the file has more than {self._bytes_max:,} bytes when it is unpacked", code="file_too_large"
                )
            if piece:
                yield piece

    def _stored(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                self.position += len(piece)
                yield piece

    def _members(self) -> Iterator[bytes]:
        """Yield the members of the gzip file in order, as gzip itself reads them; small ones are joined."""
        parts, size = list[bytes](), 0
        try:
            for part in self._unpacked():
                parts.append(part)
                size += len(part)
                if size >= _TOGETHER_BYTES:
                    yield b"".join(parts)
                    parts, size = [], 0
        except zlib.error as fault:
            raise FileRefused(f"the gzip file is damaged: {fault}", code="damaged_file") from None
        yield b"".join(parts)

    def _unpacked(self) -> Iterator[bytes]:
        member, size, small = zlib.decompressobj(wbits=31), 0, 0
        window = _WINDOW_BYTES  # grows within a member: zlib copies the input after a member's end each time
        for packed in self._stored():
            at, view = 0, memoryview(packed)
            while at < len(packed):
                if member.eof:
                    at = _padding_end(packed, at)
                    if at == len(packed):
                        break
                    small += size < _SMALL_BYTES
                    if small > _SMALL_MEMBERS_MAX:
                        raise FileRefused(
                            f"the gzip file consists of more than {_SMALL_MEMBERS_MAX:,} tiny parts",
                            code="damaged_file",
                        )
                    member, size, window = zlib.decompressobj(wbits=31), 0, _WINDOW_BYTES
                taken = view[at : at + window]
                part = member.decompress(taken, PIECE_BYTES)
                at += len(taken) - len(member.unused_data) - len(member.unconsumed_tail)
                size += len(part)
                window = min(2 * window, PIECE_BYTES)
                if part:
                    yield part
        if not member.eof and (rest := member.flush()):  # zlib may hold back a last repetition
            yield rest
        if not member.eof:
            raise FileRefused("the gzip file is incomplete: upload it again", code="truncated_file")


def _padding_end(packed: bytes, at: int) -> int:
    """Return the position after the zeros that may pad a member."""
    found = _PADDING.match(packed, at)
    return found.end() if found else at


def refuse_binary(start: bytes) -> None:
    """Raise FileRefused if the first bytes are clearly not text; UTF-16 and UTF-32 must be ruled out before."""
    for signature, what in _BINARY:
        if start.startswith(signature):
            raise FileRefused(f"the file is {what}, not text", code="not_text")
    if start[257:262] == b"ustar":
        raise FileRefused("the file is a tar archive, not text", code="not_text")
    controls = len(start) - len(start.translate(None, _CONTROLS))
    if start.count(0) > 0.3 * len(start) or (len(start) >= 200 and controls > 0.05 * len(start)):
        raise FileRefused("the file is not text: it contains many control characters", code="not_text")

"""The bytes of a file as they were before packing, in pieces, up to a limit."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from rowlock.errors import FileRefused

PIECE_BYTES = 1 << 20
GZIP = b"\x1f\x8b"

_BINARY = (
    (b"PK\x03\x04", "a ZIP file or a workbook"),
    (b"PK\x05\x06", "an empty ZIP file"),
    (b"%PDF-", "a PDF"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or an encrypted Office file"),
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
    """A file, unpacked where it is gzip; `position` tells how far into the file itself the last piece reached."""

    def __init__(self, path: Path, unpacked_bytes_max: int) -> None:
        self.path = path
        self.size = os.path.getsize(path)
        self.position = 0
        self._bytes_max = unpacked_bytes_max
        with path.open("rb") as file:
            self.gzip = file.read(2) == GZIP

    def pieces(self) -> Iterator[bytes]:
        """The bytes from the start, never more than the limit."""
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
        """Each member of the gzip file, one after the other, as gzip itself reads them."""
        member = zlib.decompressobj(wbits=31)
        try:
            for packed in self._stored():
                while packed:
                    yield member.decompress(packed, PIECE_BYTES)
                    packed = member.unconsumed_tail
                    if not member.eof:
                        continue
                    packed = member.unused_data.lstrip(b"\x00")  # members may be padded
                    if packed:
                        member = zlib.decompressobj(wbits=31)
            yield member.flush()  # a last repetition may be held back
        except zlib.error as fault:
            raise FileRefused(f"the gzip file is damaged: {fault}", code="damaged_file") from None
        if not member.eof:
            raise FileRefused("the gzip file ends in the middle: it was cut off on its way", code="truncated_file")


def refuse_binary(start: bytes) -> None:
    """Refuse what is plainly no text, by its first bytes; UTF-16 and UTF-32 were taken out before."""
    for signature, what in _BINARY:
        if start.startswith(signature):
            raise FileRefused(f"the file is {what}, not text", code="not_text")
    if start[257:262] == b"ustar":
        raise FileRefused("the file is a tar archive, not text", code="not_text")
    controls = len(start) - len(start.translate(None, _CONTROLS))
    if start.count(0) > 0.3 * len(start) or (len(start) >= 200 and controls > 0.05 * len(start)):
        raise FileRefused("the file is not text: it is full of control characters", code="not_text")

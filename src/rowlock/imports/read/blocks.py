"""Cuts text into blocks of whole lines, so that memory does not grow with the file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.records import record_bytes_max

CELLS_PER_BLOCK = 1_500_000  # short lines and wide headers make more cells than bytes
LINES_PER_BLOCK = 200_000  # each may become a bad record
_BREAK = re.compile(rb"[\r\n]")
_CONTINUATION = re.compile(rb"[\x80-\xbf]*")
_CHARACTER_REST = 3  # the most bytes that follow the first one of a UTF-8 character


def lines_max(width: int) -> int:
    """Return how many lines may become rows of `width` cells at the same time."""
    return max(1, min(LINES_PER_BLOCK, CELLS_PER_BLOCK // width))


class Blocks:
    """Returns blocks of about `block_bytes` that end at a line end, never between a CR and its LF."""

    def __init__(self, pieces: Iterator[bytes], *, line_end: bytes, limits: ReadLimits) -> None:
        self._pieces = pieces
        self._line_end = line_end
        self._block_bytes = limits.block_bytes
        self._line_bytes_max = record_bytes_max(limits)
        self._rest = b""
        self._at = 0  # the rest before this position was returned already
        self._ended = False

    def next(self, tail: bytes = b"") -> tuple[bytes, bool]:
        """Return `tail` (the unfinished part of the last block) with the next block, and whether it is the last."""
        while True:
            if not self._ended and len(self._rest) - self._at < self._block_bytes:
                self._fill(self._block_bytes)
            cut = self._cut()
            if self._ended and (not cut or cut == len(self._rest)):
                data, self._rest, self._at = tail + self._rest[self._at :], b"", 0
                return data.removesuffix(b"\x1a"), True  # the end-of-file character of DOS
            if cut:
                data, self._at = tail + self._rest[self._at : cut], cut
                return data, False
            if len(self._rest) - self._at > self._line_bytes_max + _CHARACTER_REST:
                self._drop_line()
            else:
                self._fill(len(self._rest) - self._at + 1)

    def _fill(self, size: int) -> None:
        parts, have = [self._rest[self._at :]], len(self._rest) - self._at
        while have < size:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            have += len(piece)
        self._rest, self._at = b"".join(parts), 0

    def _cut(self) -> int:
        """Return where the block ends: after the last line end that fits, else the first one; 0 if none is read yet."""
        rest, start, end = self._rest, self._at, self._line_end
        # The byte after a CR must be known, so the last byte counts only if it is an LF or the last of the file.
        known = len(rest) if self._ended else len(rest) - 1
        until = len(rest) if end == b"\n" else known
        wanted = start + self._block_bytes
        cut = rest.rfind(end, start, min(wanted, until)) + 1 or rest.find(end, wanted, until) + 1
        if not cut and len(rest) - start > self._line_bytes_max:
            other = b"\r" if end == b"\n" else b"\n"
            cut = rest.rfind(other, start, min(wanted, known)) + 1 or rest.find(other, wanted, known) + 1
        return cut + 1 if cut and rest[cut - 1 : cut + 1] == b"\r\n" else cut

    def _drop_line(self) -> None:
        """Drop the end of a line that is too long. The remainder is still long enough to be refused, and ends with a
        whole character: half of one would make the whole block invalid UTF-8."""
        end = self._at + self._line_bytes_max
        if rest := _CONTINUATION.match(self._rest, end, end + _CHARACTER_REST):
            end = rest.end()
        start = self._rest[self._at : end]
        found = _BREAK.search(self._rest, end)
        while found is None and not self._ended:
            self._rest, self._at = b"", 0
            self._fill(1)
            found = _BREAK.search(self._rest)
        self._rest, self._at = start + (self._rest[found.start() :] if found else b""), 0
        if not self._ended and len(self._rest) == len(start) + 1:
            self._fill(len(self._rest) + 1)  # the byte after the break must be known, or the line is never returned

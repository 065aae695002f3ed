"""The texts that cells share: read once, stored compactly, looked up by number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import polars as pl

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook.errors import too_large
from rowlock.imports.read.workbook.guarded import GuardedParser
from rowlock.imports.read.workbook.package import Package
from rowlock.imports.read.workbook.text import Decoder, Unreadable, plain_text, unescaped

SHARED_BYTES_MAX = 200 << 20
EACH_BYTES = 16  # overhead of a text beside its characters
CHUNK = 50_000
CHUNK_CHARS = 4 << 20
PIECE_CHARS_MAX = 16 << 20
CUT = 200

_ITEM = re.compile(r'\s*<si>\s*<t(?: xml:space="preserve")?(?:/>|>([^<]*)</t>)\s*')
_OPENING = re.compile(r"<sst\b[^<>]*[^/<>]>")


class SharedTexts:
    """All shared texts of a workbook; raises FileRefused past SHARED_BYTES_MAX."""

    def __init__(self, limits: ReadLimits) -> None:
        self.too_long: set[int] = set()
        self.texts = pl.Series(dtype=pl.String)
        self._cell_chars_max = limits.cell_chars_max
        self._chunks: list[pl.Series] = []
        self._some: list[str] = []
        self._count = 0
        self._chars = 0  # of those not packed yet
        self._bytes = 0  # of the packed ones

    def add(self, text: str) -> None:
        """Add one more; a text that is too long for a cell is cut and noted in `too_long`."""
        if len(text) > self._cell_chars_max:
            self.too_long.add(self._count)
            text = text[:CUT]
        self._some.append(text)
        self._count += 1
        self._chars += len(text)
        if len(self._some) >= CHUNK or self._chars >= CHUNK_CHARS:
            self._pack()

    def done(self) -> None:
        """Join them into one series for lookups."""
        self._pack()
        if self._chunks:
            self.texts = pl.concat(self._chunks, rechunk=True)
        self._chunks = []

    def _pack(self) -> None:
        if self._some:
            packed = pl.Series(self._some, dtype=pl.String)
            self._chunks.append(packed)
            self._bytes += int(packed.estimated_size()) + EACH_BYTES * len(packed)
            self._some, self._chars = [], 0
        if self._bytes > SHARED_BYTES_MAX:
            raise too_large(f"its shared texts need more than {SHARED_BYTES_MAX >> 20} MB")


class _Items:
    """Reads shared texts from any XML with expat; joins the texts of runs and skips phonetic hints."""

    def __init__(self, part: str, into: SharedTexts, limits: ReadLimits) -> None:
        self.parser = GuardedParser(part, self._start, self._end, self._text)
        self._into = into
        self._keep_chars = limits.cell_chars_max + 1
        self._path: list[str] = []
        self._texts: list[str] = []
        self._chars = 0
        self._wanted = False

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if name == "si" and len(self._path) == 2:
            self._texts, self._chars = [], 0
        elif name == "t":
            self._wanted = self._path[1:] in (["si", "t"], ["si", "r", "t"])

    def _end(self, name: str) -> None:
        self._path.pop()
        self._wanted = False
        if name == "si" and len(self._path) == 1:
            self._into.add(plain_text("".join(self._texts)))

    def _text(self, text: str) -> None:
        if self._wanted and self._chars < self._keep_chars:
            self._texts.append(text)
            self._chars += len(text)


def read_shared(package: Package, part: str | None, limits: ReadLimits) -> SharedTexts:
    """Read all shared texts: those of the usual form without a full parse, all from the first other one on by expat."""
    shared = SharedTexts(limits)
    if part is not None:
        if package.size(part) > 4 * SHARED_BYTES_MAX:
            raise too_large(f"its shared texts need more than {SHARED_BYTES_MAX >> 20} MB")
        with closing(package.blocks(part)) as blocks:
            _read(part, blocks, shared, limits)
    shared.done()
    return shared


def _read(part: str, blocks: Iterator[bytes], shared: SharedTexts, limits: ReadLimits) -> None:
    items = _Items(part, shared, limits)
    decoder = Decoder(part)
    rest = ""
    opened = fast = False
    for block in blocks:
        data = decoder.feed(block)
        if isinstance(data, bytes):
            items.parser.feed(data)
            continue
        text = rest + data
        regular = decoder.regular(rest[-3:] + data)
        if not opened:
            opened = True
            opening = _OPENING.search(text) if regular else None
            if opening is not None:
                items.parser.feed(text[: opening.end()])
                text = text[opening.end() :]
                fast = items.parser.depth == 1
        if fast and regular:
            text, fast = _take_regular(text, shared)
        else:
            fast = False
        if not fast or len(text) > PIECE_CHARS_MAX:
            fast = False
            items.parser.feed(text)
            text = ""
        rest = text
    tail = decoder.finish()
    if rest or tail:
        items.parser.feed(rest + tail)
    items.parser.feed(b"", final=True)


def _take_regular(text: str, shared: SharedTexts) -> tuple[str, bool]:
    """Add the items of the usual form at the beginning; returns the rest, and False if an item has another form."""
    pieces = text.split("</si>")
    rest = pieces.pop()
    match, add = _ITEM.fullmatch, shared.add
    for at, piece in enumerate(pieces):
        found = match(piece)
        if found is None:
            return "</si>".join([*pieces[at:], rest]), False
        item = found[1] or ""
        if "&" in item:
            try:
                item = unescaped(item)
            except Unreadable:
                return "</si>".join([*pieces[at:], rest]), False
        add(plain_text(item) if "_x" in item else item)
    return rest, True

"""Detects how a file separates and quotes its cells: by which dialect makes its first records the most even table."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.records import Dialect, RecordReader, empty_lines

SAMPLE_BYTES = 256 << 10
_SAMPLE_RECORDS = 200
_LOOKED_AT_MAX = 5_000  # records, including blank ones
_DELIMITERS = (b",", b";", b"\t", b"|")
_WORDS = {b"": "none", b",": "comma", b";": "semicolon", b"\t": "tab", b"|": "pipe", b" ": "space", b":": "colon"}
_QUOTES = {b"": "none", b'"': "double quote", b"'": "single quote"}

_SEP_LINE = re.compile(rb'\A"?sep=([^\r\n"\x80-\xff])"?[ \t;,]*(?:\r\n|\r|\n|\Z)', re.IGNORECASE)
_NUMBER = re.compile(
    # \xc2\xa3 is a pound sign, \xc2\xa0 a space
    rb"[-+(]?(?:[.,' \xa0]|\xc2(?!\xa3))*+\d(?:[\d.,' \xa0]|\xc2(?!\xa3))*+"
    rb"\)?(?:[ \xa0]|\xc2(?!\xa3))*+(?:%|[A-Z]{3}|\$|\xe2\x82\xac|\xc2\xa3)?"
)
# A comma or semicolon is followed by a space, or a comma by the three digits of a group.
_PROSE = re.compile(rb"(?:[^,;|\t]|[,;](?= )|(?<=\d),(?=\d{3}(?!\d)))*")


def sep_line(start: bytes) -> tuple[bytes, int]:
    """Return the delimiter that Excel's "sep=" line declares and the length of that line; (b"", 0) without one."""
    found = _SEP_LINE.match(start)
    return (found[1], found.end()) if found else (b"", 0)


def delimiter_word(dialect: Dialect) -> str:
    """Return the delimiter's name for people."""
    return _WORDS.get(dialect.delimiter) or repr(dialect.delimiter.decode("latin-1"))


def quote_word(dialect: Dialect) -> str:
    """Return the quote's name for people."""
    return _QUOTES[dialect.quote]


@dataclass(frozen=True, slots=True)
class Sample:
    """The first lines of a file, and whether they are all of it."""

    text: bytes
    whole: bool


def find_dialect(sample: Sample, *, given: bytes = b"", tabs: bool = False, limits: ReadLimits) -> Dialect:
    """Return the sample's dialect; `given` is a declared delimiter, `tabs` means that the file name promises tabs."""
    views = [_view(sample, delimiter, limits) for delimiter in ([given] if given else _DELIMITERS)]
    promised = [view for view in views if tabs and view.dialect.delimiter == b"\t" and _has_tabs(view, views)]
    blank = [view for view in views if not view.records and not view.faults]
    best = max(promised or blank or views, key=lambda view: view.score)
    if given or promised or blank or not best.one_column:
        return best.dialect
    return _view(sample, b"", limits).dialect


def _has_tabs(view: _View, views: list[_View]) -> bool:
    """Return whether tabs fit; comments above the table are allowed if no other delimiter fits every record."""
    return view.even >= 0.5 or (view.below >= 0.5 and all(other.even < 1.0 for other in views))


@dataclass(frozen=True, slots=True)
class _View:
    """The sample read with one dialect."""

    dialect: Dialect
    records: list[list[bytes]]
    faults: int

    @property
    def usual(self) -> int:
        """The most frequent number of cells above one; the largest if several are equally frequent."""
        counts = Counter(len(cells) for cells in self.records if len(cells) > 1)
        return max(counts, key=lambda cells: (counts[cells], cells), default=1)

    @property
    def even(self) -> float:
        """The fraction of records with the usual number of cells; a shorter record of several cells counts half."""
        usual, total = self.usual, len(self.records) + self.faults
        if usual == 1:
            return 0.0
        lengths = [len(cells) for cells in self.records]
        return sum(1.0 if n == usual else 0.5 if 1 < n < usual else 0.0 for n in lengths) / total

    @property
    def below(self) -> float:
        """The fraction of records with several cells, from the first such record on."""
        several = [len(cells) > 1 for cells in self.records]
        return several.count(True) / (len(several) - several.index(True)) if any(several) else 0.0

    @property
    def score(self) -> float:
        """Higher for even records, for many cells, and for cells that look whole."""
        cells = [cell for cells in self.records for cell in cells]
        if not cells:
            return 0.0
        looks_whole = sum(map(self._looks_whole, cells)) / len(cells)
        return self.even * (1 - 1 / self.usual) * looks_whole**2

    def _looks_whole(self, cell: bytes) -> bool:
        """Whether it looks neither cut out of a longer text nor glued together. Only quoted cells have a delimiter."""
        delimiter, text = self.dialect.delimiter, cell.strip()
        return bool(delimiter and delimiter in cell) or bool(_NUMBER.fullmatch(text) or _PROSE.fullmatch(text))

    @property
    def one_column(self) -> bool:
        """Whether this delimiter, the best one, is only a character in the text of a single column."""
        usual = self.usual
        if usual == 1:
            return True
        lengths = [len(cells) for cells in self.records]
        if lengths[0] > 1:
            return False
        rest = lengths[next(n for n, length in enumerate(lengths) if length > 1) :]
        if sum(n == usual for n in rest) < 0.5 * len(rest):
            return True
        pairs = [cells for cells in self.records if len(cells) == 2]
        if self.dialect.delimiter != b"," or usual != 2 or len(rest) < len(lengths) - 1:
            return False
        # A word above lines such as "Smith, John" or "1,5" is the heading of one column.
        return all(pair[1].startswith(b" ") for pair in pairs) or all(
            _NUMBER.fullmatch(b",".join(pair)) and pair[1].isdigit() for pair in pairs
        )


def _view(sample: Sample, delimiter: bytes, limits: ReadLimits) -> _View:
    """Return the best way to quote with this delimiter; the usual one unless the sample clearly shows another."""
    best, text = _read(sample, Dialect(delimiter), limits), sample.text
    edge = re.escape(delimiter) or rb"\n"
    start, end = rb"(?:\A|(?<=[\r\n" + edge + rb"]))", rb"(?=[\r\n" + edge + rb"]|\Z)"
    if b"\\" in text:
        view = _read(sample, replace(best.dialect, escapes=True), limits)
        if view.faults < best.faults or (view.faults == best.faults and view.even > best.even):
            best = view
    if delimiter != b" " and re.search(start + rb' +"', text):
        view = _read(sample, replace(best.dialect, spaces=True), limits)
        if view.faults <= best.faults and view.even >= best.even:
            best = view
    if best.faults and delimiter in (b"\t", b"|") and not re.search(start + rb'"(?:[^"\r\n]|"")*"' + end, text):
        view = _read(sample, replace(best.dialect, quote=b""), limits)
        if view.faults < best.faults and view.even == 1.0:
            best = view
    if b'"' not in text and b"'" in text:
        opened = len(re.findall(start + rb"'", text))
        quoted = len(re.findall(start + rb"'(?:[^'\r\n]|'')*'" + end, text))
        view = _read(sample, replace(best.dialect, quote=b"'"), limits)
        if opened == quoted >= 2 and view.faults <= best.faults and view.even >= best.even:
            best = view
    return best


def _read(sample: Sample, dialect: Dialect, limits: ReadLimits) -> _View:
    reader, text = RecordReader(dialect, limits), sample.text
    records: list[list[bytes]] = []
    faults, looked_at = 0, 0
    _, at = empty_lines(text, 0, len(text))
    while at < len(text) and len(records) + faults < _SAMPLE_RECORDS and looked_at < _LOOKED_AT_MAX:
        # Once it is known how many cells there should be, a cell may have many lines.
        width = len(records[0]) if records and len(records[0]) > 1 else None
        # An unclosed cell in the last half may be cut off; an earlier one counts as a fault.
        record = reader.read(text, at, line=1, width=width, final=sample.whole or at < len(text) // 2)
        if record is None:
            break
        looked_at += 1
        _, at = empty_lines(text, record.end, len(text))
        if record.fault and record.fault[0] != "record_too_long":
            faults += 1
        elif any(cell.strip() for cell in record.cells):
            records.append(record.cells)
    return _View(dialect, records, faults)

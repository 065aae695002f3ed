"""Properties of the reader of delimited text that hold for any file."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.imports.csv_files import Found, read_open

from rowlock.errors import FileRefused
from rowlock.imports.read import table
from rowlock.imports.read.delimited import DelimitedFile, open_delimited
from rowlock.imports.read.encoding import UTF8
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.records import Dialect
from rowlock.imports.read.unpack import Packed

LIMITS = ReadLimits(columns_max=50, cell_chars_max=200, block_bytes=1 << 20)
WHITE_ONLY = table.WHITE

common = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

cells = st.text(
    st.sampled_from("ab ,;\t|\"'\\\r\n\0é日🎉\ufeff\x85\u2028=") | st.characters(exclude_categories=["Cs"]), max_size=12
)
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=8)
)
noise = st.lists(
    st.sampled_from([*'aé日\ufeff\0 \\;\'\r,,""\n\n', "b1", '""', "\r\n", '\\"', "x,y\n", '"q","r"\n', "a,b,c\r\n"]),
    max_size=60,
).map("".join)  # fmt: skip


def source(path: Path, content: bytes, dialect: Dialect, limits: ReadLimits = LIMITS) -> DelimitedFile:
    path.write_bytes(content)
    return DelimitedFile(Packed(path, 1 << 30), UTF8, dialect, sample=content[:4_096], skip=0, limits=limits)


def outcome(path: Path, content: bytes, dialect: Dialect, width: int, limits: ReadLimits = LIMITS) -> Found | str:
    """All rows of the content, as if the header stood above it."""
    try:
        return read_open(source(path, content, dialect, limits), header_row=0, width=width)
    except FileRefused as refused:
        return refused.code


def is_blank(row: list[str]) -> bool:
    return not any(cell.strip(WHITE_ONLY) for cell in row)


@common
@given(
    table=tables,
    delimiter=st.sampled_from(",;\t|"),
    quote=st.sampled_from("\"'"),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    style=st.sampled_from(["minimal", "all", "nonnumeric", "escaped", "never"]),
)
def test_what_the_standard_writer_writes_is_read_back(
    tmp_path: Path, table: list[list[str]], delimiter: str, quote: str, ends: str, style: str
) -> None:
    quoting = {"all": csv.QUOTE_ALL, "nonnumeric": csv.QUOTE_NONNUMERIC, "never": csv.QUOTE_NONE}.get(
        style, csv.QUOTE_MINIMAL
    )
    escapes = style in ("escaped", "never")
    content = ""
    for row in table:
        written = io.StringIO(newline="")
        # With this line end the writer quotes or escapes both CR and LF; with another only that one.
        csv.writer(
            written, delimiter=delimiter, quotechar=quote, lineterminator="\r\n", quoting=quoting,
            doublequote=not escapes, escapechar="\\" if escapes else None,
        ).writerow(row if row != [""] or style != "never" else [" "])  # fmt: skip
        content += written.getvalue().removesuffix("\r\n") + ends
    dialect = Dialect(delimiter.encode(), quote.encode(), escapes=escapes)
    found = outcome(tmp_path / "x", content.encode(), dialect, len(table[0]))
    expected = [(n, tuple(row)) for n, row in enumerate(table, 1) if not is_blank(row)]
    if isinstance(found, str):
        assert (found, expected) == ("empty_file", [])
    else:
        assert (found.rows, found.bad) == (expected, [])


@common
@given(
    content=noise,
    width=st.integers(1, 4),
    quote=st.sampled_from([b'"', b"'", b""]),
    delimiter=st.sampled_from([b",", b";", b""]),
    escapes=st.booleans(),
    spaces=st.booleans(),
)
def test_the_vectorised_reader_finds_what_the_record_reader_finds(
    tmp_path: Path, content: str, width: int, quote: bytes, delimiter: bytes, escapes: bool, spaces: bool
) -> None:
    dialect = Dialect(delimiter, quote, escapes=escapes, spaces=spaces and bool(quote))
    fast = outcome(tmp_path / "x", content.encode(), dialect, width)
    with mock.patch.object(table, "find_lines", return_value=None):
        slow = outcome(tmp_path / "x", content.encode(), dialect, width)
    assert fast == slow


@common
@given(
    content=noise,
    broken=st.booleans(),
    size=st.integers(16, 200),
    width=st.integers(1, 3),
    chars=st.sampled_from([5, 200]),
)
def test_small_blocks_find_what_one_block_finds(
    tmp_path: Path, content: str, broken: bool, size: int, width: int, chars: int
) -> None:
    data = content.encode().replace(b"b1", b"\xe9") if broken else content.encode()
    big = ReadLimits(columns_max=50, cell_chars_max=chars, block_bytes=1 << 20)
    small = ReadLimits(columns_max=50, cell_chars_max=chars, block_bytes=size)
    with mock.patch("rowlock.imports.read.records.record_bytes_max", return_value=1 << 20):
        assert outcome(tmp_path / "x", data, Dialect(), width, small) == outcome(
            tmp_path / "x", data, Dialect(), width, big
        )


@common
@given(content=noise, cells_max=st.integers(1, 8))
def test_few_cells_per_block_find_what_one_block_finds(tmp_path: Path, content: str, cells_max: int) -> None:
    whole = outcome(tmp_path / "x", content.encode(), Dialect(), 3)
    with mock.patch("rowlock.imports.read.blocks.CELLS_PER_BLOCK", cells_max):
        assert outcome(tmp_path / "x", content.encode(), Dialect(), 3) == whole


MODELS = [
    'id,name,note\n1,José,"a ""b"" c"\n2,Bo,"two\nlines"\n'.encode() * 3,
    "id;price\r\n1;2,5\r\n2;3,5\r\n".encode("utf-16"),
    gzip.compress(b"a\tb\n1\t2\n" * 5),
    "sep=|\na|b\né|ü\n".encode("cp1252"),
]


@common
@given(
    model=st.sampled_from(MODELS),
    changes=st.lists(st.tuples(st.integers(0, 150), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=6),
)
def test_no_change_of_bytes_raises_anything_but_a_refusal(
    tmp_path: Path, model: bytes, changes: list[tuple[int, bytes, int]]
) -> None:
    for at, new, length in changes:
        model = model[:at] + new + model[at + length :]
    path = tmp_path / "x"
    path.write_bytes(model)
    try:
        found = read_open(open_delimited(path, name="x.csv", limits=LIMITS))
    except FileRefused:
        return
    rows = [row for row, _ in found.rows]
    bad = [row for row, _ in found.bad]
    assert rows == sorted(set(rows))
    assert not set(rows) & set(bad)
    assert "\ufffd" not in "".join(cell for row in found.cells for cell in row)


@common
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    code = "read"
    try:
        read_open(open_delimited(path, name="x.csv", limits=LIMITS))
    except FileRefused as refused:
        code = refused.code
    assert code in {
        "read",
        "empty_file",
        "not_text",
        "encoding_unknown",
        "damaged_file",
        "truncated_file",
        "too_many_columns",
    }


@pytest.mark.parametrize("cell", [*WHITE_ONLY, "\x1c", "\x1f", "\u200b", "\ufeff", "\0", "\u180e"])
def test_both_readers_agree_on_what_is_blank(tmp_path: Path, cell: str) -> None:
    content = f'"{cell}","{cell}"\nx,y\n'.encode()
    fast = outcome(tmp_path / "x", content, Dialect(), 2)
    with mock.patch.object(table, "find_lines", return_value=None):
        assert outcome(tmp_path / "x", content, Dialect(), 2) == fast

"""Malformed records are cheap: counted in steps of the record reader, not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.imports.test_csv_properties import common, outcome, source

from rowlock.imports.read import lines, lookahead, records, table
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.records import Dialect, RecordReader

COMMON = {
    "line breaks in quotes": '1,"two\nlines",3\n',
    "line breaks of Windows in quotes": '1,"two\r\nlines",3\r\n',
    "several cells of several lines": '"1\n1","2\n\n2",3\n',
    "quotes": '1,"2, 2","say ""hi"""\n',
    "inches": '5" pipe,2,3"\n',
    "one cell": "1\n",
    "one quoted cell": '"1"\n',
    "two cells": "1,2\n",
    "a short record of several lines": '1,"2\n2"\n',
    "blank cells behind": "1,2,3,,  ,\n",
    "blank cells behind quotes": '1,2,"3",,\n',
    "blank rows": ",,\n",
    "rows of spaces": "  \n",
}


@contextmanager
def counted(owner: type, name: str) -> Iterator[list[int]]:
    """How often the method is called."""
    calls, method = [0], getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        return method(*args, **named)

    with mock.patch.object(owner, name, call):
        yield calls


@pytest.mark.parametrize("case", COMMON)
def test_what_real_exports_are_full_of_is_not_read_one_by_one(tmp_path: Path, case: str) -> None:
    content = ("a,b,c\n" + COMMON[case] * 500).encode()
    file = source(tmp_path / "x", content, Dialect())
    with counted(RecordReader, "read") as calls:
        rows = sum(batch.frame.height for batch in file.batches(1, 3))
    assert rows == (0 if case in ("blank rows", "rows of spaces") else 500)
    assert calls[0] <= 2  # the header, and what may be cut off at the end


@pytest.mark.parametrize("case", ['"1"\n', '"1 ""x"""\n', "1\n", '"1\n1"\n', '5"\n'])
def test_a_file_of_one_column_is_not_read_one_by_one(tmp_path: Path, case: str) -> None:
    file = source(tmp_path / "x", ("a\n" + case * 500).encode(), Dialect(b""))
    with counted(RecordReader, "read") as calls:
        assert sum(batch.frame.height for batch in file.batches(1, 1)) == 500
    assert calls[0] <= 2


def test_a_broken_byte_costs_its_own_line_only(tmp_path: Path) -> None:
    content = b"a,b\n" + b"1,2\n" * 500 + b"\xff,3\n" + "é,4\n".encode() * 500
    file = source(tmp_path / "x", content, Dialect())
    with counted(RecordReader, "read") as calls:
        batches = list(file.batches(1, 2))
    assert [(bad.row, bad.code) for batch in batches for bad in batch.bad] == [(502, "bad_encoding")]
    assert sum(batch.frame.height for batch in batches) == 1_000
    assert calls[0] <= 2


@pytest.mark.parametrize("line", ['a",b,"c\n', '1,"2,3\n', '","a\n', '",",a\n', '"\n', 'x,""y,"z\n'])
@pytest.mark.parametrize("width", [3, 300])
def test_quotes_that_are_never_closed_are_not_looked_for_again_and_again(tmp_path: Path, line: str, width: int) -> None:
    limits = ReadLimits(columns_max=1_000, cell_chars_max=10_000, block_bytes=1 << 20)
    file = source(tmp_path / "x", (line * 3_000).encode(), Dialect(), limits)
    with counted(RecordReader, "_close") as calls:
        for _ in file.batches(0, width):
            pass
    assert calls[0] < 8 * 3_000


def test_a_wide_header_over_short_rows_makes_few_cells(tmp_path: Path) -> None:
    file = source(tmp_path / "x", b"1\n" * 5_000, Dialect(), ReadLimits())
    batches = list(file.batches(0, 1_000))
    assert [batch.frame.height for batch in batches] == [1_500, 1_500, 1_500, 500]
    assert all(batch.frame.width == 1_001 for batch in batches)
    assert [batch.done for batch in batches] == [0.3, 0.6, 0.9, 1.0]


pieces = st.lists(
    st.sampled_from(
        [
            *'a",\n',
            '\n"',
            '",',
            '","',
            '"\n',
            '"x\ny",',
            'a",b,"c\n',
            '5" p,',
            "1,2,3\n",
            '"q","r"\n',
            "\r\n",
            ",,\n",
            "é",
        ]
    ),
    max_size=60,
).map("".join)


@common
@given(content=pieces, width=st.integers(1, 4), chars=st.sampled_from([5, 200]))
def test_leaps_find_what_looking_at_everything_finds(tmp_path: Path, content: str, width: int, chars: int) -> None:
    limits = ReadLimits(columns_max=50, cell_chars_max=chars, block_bytes=1 << 20)
    with mock.patch.object(records, "QUOTED_LINES_MAX", 3), mock.patch.object(lines, "QUOTED_LINES_MAX", 3):
        leaping = outcome(tmp_path / "x", content.encode(), Dialect(), width, limits)
        with mock.patch.object(lookahead.LookAheads, "of", return_value={}):
            assert outcome(tmp_path / "x", content.encode(), Dialect(), width, limits) == leaping


@common
@given(content=pieces, width=st.integers(1, 4), broken=st.booleans(), spaces=st.booleans())
def test_records_of_several_lines_are_the_same_read_together_or_alone(
    tmp_path: Path, content: str, width: int, broken: bool, spaces: bool
) -> None:
    data = content.encode().replace("é".encode(), b"\xe9") if broken else content.encode()
    dialect = Dialect(spaces=spaces)
    with ExitStack() as patches:
        for module in (records, lines):
            patches.enter_context(mock.patch.object(module, "QUOTED_LINES_MAX", 3))
        together = outcome(tmp_path / "x", data, dialect, width)
        patches.enter_context(mock.patch.object(table, "find_lines", return_value=None))
        patches.enter_context(mock.patch.object(records, "_line_patterns", return_value=None))
        patches.enter_context(mock.patch.object(records, "_plain_cells", return_value=None))
        assert outcome(tmp_path / "x", data, dialect, width) == together

"""The fast reader of sheets and expat agree with each other and with openpyxl."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imports.workbooks import (
    BOOL,
    DATE,
    DATETIME,
    NUMBER,
    TEXT,
    TIME,
    Cell,
    parts,
    read,
    shared_xml,
    sheet_xml,
    styles_xml,
    write,
)
from rowlock import errors
from rowlock.imports.read.workbook.rows import Outlines

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

space = st.sampled_from(["", "", "", " ", "\n  ", "\r\n\t"])
gap = st.sampled_from([" ", " ", "  ", "\n"])
content = st.one_of(
    st.sampled_from(
        ["0", "1", "2", "7", "45000.5", "0.25", "60", "abc", "#N/A", "", " ", "true", "2023-03-15", "5e-7"]
    ),
    st.sampled_from(["a &amp; b", "&lt;x&gt;", "&#65;", "&#x1F600;", "_x000D_", "a>b", "a\r\nb", "é 課", "&bad;", "&"]),
    st.integers(-(10**6), 10**6).map(str),
)


@st.composite
def cell(draw: st.DrawFn, reference: str) -> str:
    kind = draw(st.sampled_from([None, None, "n", "s", "str", "inlineStr", "b", "e", "d", "odd"]))
    attributes = [f'r="{reference}"'] if draw(st.integers(0, 9)) else []
    if kind is not None:
        attributes.append(f't="{kind}"')
    if draw(st.booleans()):
        attributes.append(
            draw(st.sampled_from(['s="1"', 's="2"', 's="3"', "s='1'", 's="99"', 's="x"', 'cm="1"', 'x:r="Z9"']))
        )
    start = "<c" + "".join(draw(gap) + attribute for attribute in draw(st.permutations(attributes))) + draw(space)
    if not draw(st.integers(0, 7)):
        return start + "/>"
    text = draw(content)
    f = draw(
        st.sampled_from(
            ["", "", "", "<f>A1+1</f>", "<f/>", '<f t="shared" ref="A1:A5" si="0">B1</f>', '<f t="shared" si="0"/>']
        )
    )
    v = draw(
        st.sampled_from(
            [
                f"<v>{text}</v>",
                f"<v>{text}</v>",
                "<v/>",
                "",
                f"<is><t>{text}</t></is>",
                f'<is><t xml:space="preserve">{text}</t></is>',
                f"<is><r><t>{text}</t></r><rPh><t>p</t></rPh><r><t>z</t></r></is>",
                f"<v>{text}</v><extLst><ext><v>9</v></ext></extLst>",
                f"<v>a<i>{text}</i>b</v>",
            ]
        )
    )
    return f"{start}>{draw(space)}{f}{draw(space)}{v}{draw(space)}</c>"


@st.composite
def sheet(draw: st.DrawFn) -> str:
    rows = []
    number = 0
    shapes = draw(st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=3))
    for _ in range(draw(st.integers(1, 8))):
        number += draw(st.sampled_from([1, 1, 1, 1, 2, 10, 0, 93]))
        columns = draw(st.sampled_from(shapes))
        cells = [draw(cell(f"{'ABCDE'[column]}{number}")) for column in columns]
        attributes = [f'r="{number}"'] if draw(st.integers(0, 9)) else []
        attributes += draw(
            st.sampled_from([[], ['spans="1:5"'], ['hidden="1"'], ["ht='15'"], ["""a=' r="7"'"""], ['b="x>y"']])
        )
        start = "<row" + "".join(draw(gap) + attribute for attribute in attributes)
        rows.append(draw(space) + (f"{start}>{draw(space).join(cells)}{draw(space)}</row>" if cells else f"{start}/>"))
    return "".join(rows)


def outcome(path: Path, rows: str) -> Any:
    shared = shared_xml("<t>zero</t>", "<t>o&amp;ne</t>", "<r><t>t</t></r><r><t>wo</t></r>")
    styles = styles_xml(0, "yyyy-mm-dd", "hh:mm", "yyyy-mm-dd hh:mm")
    try:
        return read(write(path, parts(sheet_xml(rows), shared=shared, styles=styles)), width=4)
    except errors.FileRefused as refused:
        return refused.code


@relaxed
@given(sheet())
def test_the_fast_way_and_expat_say_the_same(tmp_path: Path, rows: str) -> None:
    assert outcome(tmp_path / "fast.xlsx", rows) == outcome(tmp_path / "slow.xlsx", f"<!-- -->{rows}")


def test_regular_rows_are_never_given_to_expat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_to_expat: list[str] = []
    parse = Outlines.parse

    def watched(self: Outlines, piece: str, numbers: Any) -> Any:
        given_to_expat.append(piece)
        return parse(self, piece, numbers)

    monkeypatch.setattr(Outlines, "parse", watched)
    path = tmp_path / "regular.xlsx"
    rows = [[n, f"name {n}", n / 7, dt.date(2026, 1, 1), n % 2 == 0, "a & b"] for n in range(500)]
    write_with_xlsxwriter(path, rows, constant_memory=False)
    assert len(read(path, width=6).rows) == 500
    write_with_xlsxwriter(path, rows, constant_memory=True)
    assert len(read(path, width=6).rows) == 500
    write_with_openpyxl(path, rows)
    assert len(read(path, width=6).rows) == 500
    # Only where a row's number ends like the number of a style is the row looked at by expat.
    assert len(given_to_expat) <= 6


value = st.one_of(
    st.none(),
    st.integers(-(2**53), 2**53),
    st.floats(-1e15, 1e15, allow_nan=False).filter(lambda number: number == 0 or abs(number) > 1e-300),
    st.booleans(),
    st.text(
        st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"], exclude_characters="=_"),
        min_size=1,
        max_size=20,
    ).filter(
        lambda text: (
            text.strip() == text and not text.startswith(("#", "{", "http", "ftp", "mailto:", "internal:", "external:"))
        )
    ),
    st.dates(dt.date(1901, 1, 1), dt.date(9999, 12, 31)),
    st.datetimes(dt.datetime(1901, 1, 1), dt.datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    st.times().map(lambda clock: clock.replace(microsecond=0, tzinfo=None)),
)
table = st.lists(st.lists(value, min_size=1, max_size=5), min_size=1, max_size=10)


def write_with_xlsxwriter(path: Path, rows: list[list[Any]], *, constant_memory: bool) -> None:
    with xlsxwriter.Workbook(path, {"constant_memory": constant_memory, "strings_to_urls": False}) as book:
        formats = {
            dt.date: book.add_format({"num_format": "yyyy-mm-dd"}),
            dt.datetime: book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
            dt.time: book.add_format({"num_format": "hh:mm:ss"}),
        }
        page = book.add_worksheet()
        for at, row in enumerate(rows):
            for column, cell_value in enumerate(row):
                if cell_value is not None:
                    page.write(at, column, cell_value, formats.get(type(cell_value)))


def write_with_openpyxl(path: Path, rows: list[list[Any]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def as_cell(cell_value: Any) -> Cell:
    """What openpyxl read, as we would write it."""
    match cell_value:
        case None:
            return TEXT, ""
        case bool():
            return BOOL, str(cell_value).lower()
        case int() | float():
            return NUMBER, repr(float(cell_value)).removesuffix(".0") if cell_value else "0"
        case dt.datetime():
            return DATETIME, cell_value.isoformat()
        case dt.date():
            return DATE, cell_value.isoformat()
        case dt.time():
            return TIME, cell_value.isoformat()
    return TEXT, str(cell_value)


@relaxed
@given(rows=table, writer=st.sampled_from(["openpyxl", "xlsxwriter", "inline"]))
def test_values_are_those_that_openpyxl_reads(tmp_path: Path, rows: list[list[Any]], writer: str) -> None:
    path = tmp_path / "values.xlsx"
    if writer == "openpyxl":
        write_with_openpyxl(path, rows)
    else:
        write_with_xlsxwriter(path, rows, constant_memory=writer == "inline")
    book = openpyxl.load_workbook(path, data_only=True)
    expected: dict[int, list[Cell]] = {}
    for number, row in enumerate(book.active.iter_rows(values_only=True), 1):
        cells = [as_cell(cell_value) for cell_value in (*row, *[None] * 5)[:5]]
        if any(text.strip() for _, text in cells):
            expected[number] = cells
    book.close()
    found = read(path, width=5)
    assert not found.bad
    # A date is a date for us and a midnight for openpyxl; a long number has its digits, or an exponent.
    for number, cells in found.rows.items():
        for at, (kind, text) in enumerate(cells):
            if kind is DATE:
                cells[at] = (DATETIME, f"{text}T00:00:00")
            if kind is NUMBER and abs(float(text)) >= 1e15:
                cells[at] = as_cell(float(text))
        assert cells == expected.pop(number)
    assert expected == {}


def test_a_style_that_ends_like_the_rows_number_is_not_taken_for_it(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}"><c r="A{n}" s="{n}"><v>45000.5</v></c></row>' for n in range(1, 4))
    path = write(tmp_path / "s.xlsx", parts(sheet_xml(rows), styles=styles_xml(0, "0.0", "yyyy-mm-dd hh:mm", "0")))
    assert [cells[0][0] for cells in read(path).rows.values()] == [NUMBER, DATETIME, NUMBER]

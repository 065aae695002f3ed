"""Cells of a workbook: every kind that writers produce, and its value."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imports.workbooks import (
    BOOL,
    DATE,
    DATETIME,
    ERROR,
    FORMULA,
    NUMBER,
    TEXT,
    TIME,
    Cell,
    cells_of,
    one_sheet,
    parts,
    read,
    shared_xml,
    sheet_xml,
    styles_xml,
    write,
)
from rowlock.imports.read.workbook.numbers import number_text, plain_numbers, shortened
from rowlock.imports.read.workbook.styles import Show, show_of


def number(value: str, *, style: int | None = None) -> str:
    return (f' s="{style}"' if style is not None else "") + f"><v>{value}</v></c>"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("5", "5"),
        ("5.0", "5"),
        ("-12.50", "-12.5"),
        ("0.1", "0.1"),
        ("0.10000000000000001", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1234.5599999999999", "1234.56"),
        ("1E-3", "0.001"),
        ("1e-05", "1e-05"),
        ("0.00001", "1e-05"),
        ("0.0001", "0.0001"),
        ("1E3", "1000"),
        ("-0", "0"),
        ("007", "7"),
        (" 5 ", "5"),
        ("9007199254740992", "9007199254740992"),
        ("999999999999999", "999999999999999"),
        ("12345678901234567890", "12345678901234567890"),
        ("1234567890125601", "1234567890125601"),
        ("-0012345678901235603.00", "-12345678901235603"),
        ("+12345678901235603", "12345678901235603"),
        ("1.23456789012346E+16", "1.23456789012346e+16"),
        ("1.2345678901235603E+16", "1.2345678901235604e+16"),
        ("1E15", "1e+15"),
        ("1234567890123450", "1.23456789012345e+15"),
        ("12345678901235600", "1.23456789012356e+16"),
        ("1234567890123456.5", "1.2345678901234565e+15"),
        ("1" * 40, "1" * 40),
        ("1e300", "1e+300"),
    ],
)
def test_a_number_is_its_shortest_text(tmp_path: Path, written: str, text: str) -> None:
    assert cells_of(tmp_path, number(written), number("1")) == [(NUMBER, text), (NUMBER, "1")]


def test_a_long_number_that_ends_with_zeros_is_exact_beside_one_that_nobody_rounded(tmp_path: Path) -> None:
    ids = ["12345678901235599", "12345678901235600", "12345678901235601", "1.5E16"]
    rows = "".join(f'<row r="{n}"><c r="A{n}"><v>{written}</v></c></row>' for n, written in enumerate(ids, 1))
    found = read(one_sheet(tmp_path, rows))
    assert [text for (text,) in found.texts.values()] == [*ids[:3], "1.5e+16"]


@pytest.mark.parametrize("written", ["abc", "1,5", "NaN", "INF", "1e999", "1_000", "0x10", "9" * 500, "--1"])
def test_what_is_no_number_costs_its_row(tmp_path: Path, written: str) -> None:
    rows = f'<row r="1"><c r="A1"><v>{written}</v></c></row><row r="2"><c r="A2"><v>2</v></c></row>'
    found = read(one_sheet(tmp_path, rows))
    assert found.texts == {2: ["2"]}
    assert [(bad.row, bad.code) for bad in found.bad] == [(1, "damaged_cell")]
    assert "A1" in found.bad[0].reason


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**18), 10**18).map(float)))
def test_the_vectorised_numbers_are_those_of_one_by_one(value: float) -> None:
    for written in (repr(value), f"{value:.17g}", f"{value:.3f}", f"{value:.10e}", f"{value:.0f}"):
        right = number_text(written)
        texts = pl.Series([written], dtype=pl.String)
        if math.isinf(float(written)):  # rounded up beyond all numbers
            assert right is None
            continue
        assert right is not None
        assert float(right) == float(written)
        if plain_numbers(texts)[0]:
            assert written == right
        assert shortened(texts)[0] in (None, right)


def test_texts_keep_leading_zeros_and_space(tmp_path: Path) -> None:
    shared = shared_xml("<t>007</t>", '<t xml:space="preserve">  a  </t>', "<t/>", "<t>x &amp; &#x263A; &lt;y&gt;</t>")
    cells = [f' t="s"><v>{n}</v></c>' for n in range(4)]
    expected: list[Cell] = [(TEXT, "007"), (TEXT, "  a  "), (TEXT, ""), (TEXT, "x & ☺ <y>")]
    assert cells_of(tmp_path, *cells, shared=shared) == expected


def test_rich_text_is_joined_and_phonetic_hints_are_left_out(tmp_path: Path) -> None:
    rich = '<r><rPr><b/></rPr><t>課</t></r><r><t xml:space="preserve"> 長</t></r><rPh sb="0" eb="1"><t>カ</t></rPh>'
    shared = shared_xml(rich, "<t>東京</t><rPh><t>トウキョウ</t></rPh><phoneticPr fontId='1'/>", "<t>after</t>")
    cells = [*(f' t="s"><v>{n}</v></c>' for n in range(3)), f' t="inlineStr"><is>{rich}</is></c>']
    assert cells_of(tmp_path, *cells, shared=shared) == [
        (TEXT, "課 長"),
        (TEXT, "東京"),
        (TEXT, "after"),
        (TEXT, "課 長"),
    ]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a_x000D_b", "a\rb"),
        ("a_x000d_\nb", "a\r\nb"),
        ("_x005F_x000D_", "_x000D_"),
        ("_x0041_", "A"),
        ("_xD83D__xDE00_", "😀"),
        ("_xD83D_ alone", "_xD83D_ alone"),
        ("nul _x0000_", "nul _x0000_"),
        ("_x00_ _y0041_", "_x00_ _y0041_"),
        ("a\r\nb", "a\nb"),
        ("a&#13;&#10;b", "a\r\nb"),
    ],
)
def test_escapes_of_excel_are_resolved(tmp_path: Path, written: str, text: str) -> None:
    cells = [' t="s"><v>0</v></c>', f' t="str"><v>{written}</v></c>', f' t="inlineStr"><is><t>{written}</t></is></c>']
    assert cells_of(tmp_path, *cells, shared=shared_xml(f"<t>{written}</t>")) == [(TEXT, text)] * 3


def test_booleans_errors_and_cached_values_by_their_type(tmp_path: Path) -> None:
    assert cells_of(
        tmp_path,
        ' t="b"><v>1</v></c>',
        ' t="b"><v>0</v></c>',
        ' t="e"><v>#DIV/0!</v></c>',
        ' t="e"><f>1/0</f><v>#N/A</v></c>',
        ' t="str"><f>A1&amp;"x"</f><v>1 &amp; x</v></c>',
        ' t="b"><f>1=1</f><v>1</v></c>',
        "><f>1+1</f><v>2</v></c>",
        ' t="str"><f>""</f><v></v></c>',
    ) == [
        (BOOL, "true"),
        (BOOL, "false"),
        (ERROR, "#DIV/0!"),
        (ERROR, "#N/A"),
        (TEXT, "1 & x"),
        (BOOL, "true"),
        (NUMBER, "2"),
        (TEXT, ""),
    ]


def test_a_formula_without_a_value_is_said_to_be_one(tmp_path: Path) -> None:
    assert cells_of(
        tmp_path,
        "><f>SUM(B1:B2)</f></c>",
        "><f>A1&lt;5</f><v></v></c>",
        "><f>A1</f><v/></c>",
        ' t="str"><f>A1</f></c>',
        '><f t="shared" ref="A5:A9" si="0">B5*2</f></c>',
        '><f t="shared" si="0"/></c>',
        '><f t="array" ref="A7">SUM(B1:B9*C1:C9)</f></c>',
        f"><f>{'A1+' * 200}1</f></c>",
        '><f t="shared" si="0"/><v>12</v></c>',
    ) == [
        (FORMULA, "=SUM(B1:B2)"),
        (FORMULA, "=A1<5"),
        (FORMULA, "=A1"),
        (FORMULA, "=A1"),
        (FORMULA, "=B5*2"),
        (FORMULA, "="),
        (FORMULA, "=SUM(B1:B9*C1:C9)"),
        (FORMULA, ("=" + "A1+" * 200)[:200]),
        (NUMBER, "12"),
    ]


D, T, B = Show.DATE, Show.TIME, Show.BOTH


@pytest.mark.parametrize(
    ("code", "show"),
    [
        ("General", Show.NUMBER),
        ("0.00", Show.NUMBER),
        ("@", Show.NUMBER),
        ("0.00E+00", Show.NUMBER),
        ('#,##0 "days"', Show.NUMBER),
        ("#,##0\\d", Show.NUMBER),
        ("[Red]-0.00;[Blue]0", Show.NUMBER),
        ("_-* #,##0.00 _d_-", Show.NUMBER),
        ("[$€-407] #,##0", Show.NUMBER),
        ("[h]:mm", Show.NUMBER),
        ("[mm]:ss", Show.NUMBER),
        ('0 "h"', Show.NUMBER),
        ("yyyy-mm-dd", D),
        ("[$-409]d-mmm-yy;@", D),
        ("dd/mm/yyyy\\ ", D),
        ("mmmm", D),
        ("m/d", D),
        ('d". "mmmm" "yyyy', D),
        ("[$-F800]dddd\\,\\ mmmm\\ dd\\,\\ yyyy", D),
        ('yyyy"年"m"月"d"日"', D),
        ("[$-411]ge.m.d", D),
        ("h:mm", T),
        ("h:mm AM/PM", T),
        ("[$-409]h:mm:ss AM/PM;@", T),
        ("mm:ss", T),
        ("mm:ss.0", T),
        ("yyyy-mm-dd hh:mm", B),
        ("m/d/yy h:mm", B),
        ("dd.mm.yyyy hh:mm:ss.000", B),
    ],
)
def test_formats_tell_dates_from_numbers(code: str, show: Show) -> None:
    assert show_of(code) is show


@pytest.mark.parametrize(
    ("style", "serial", "cell"),
    [
        (D, "45000", (DATE, "2023-03-15")),
        (D, "45000.5", (DATETIME, "2023-03-15T12:00:00")),
        (B, "45000", (DATETIME, "2023-03-15T00:00:00")),
        (B, "45000.416666666664", (DATETIME, "2023-03-15T10:00:00")),
        (B, "45000.99999999999", (DATETIME, "2023-03-16T00:00:00")),
        (B, "45000.50000578704", (DATETIME, "2023-03-15T12:00:00.500")),
        (B, "0.75", (TIME, "18:00:00")),
        (T, "0.41666666666666669", (TIME, "10:00:00")),
        (T, "0", (TIME, "00:00:00")),
        (T, "0.99999999999999", (TIME, "23:59:59.999")),
        (T, "45000.25", (DATETIME, "2023-03-15T06:00:00")),
        (D, "1", (DATE, "1900-01-01")),
        (D, "59", (DATE, "1900-02-28")),
        (D, "60", (NUMBER, "60")),
        (D, "60.5", (NUMBER, "60.5")),
        (D, "61", (DATE, "1900-03-01")),
        (D, "2958465", (DATE, "9999-12-31")),
        (B, "2958465.9999999999", (NUMBER, "2958466")),
        (D, "2958466", (NUMBER, "2958466")),
        (D, "-1", (NUMBER, "-1")),
        (D, "0", (NUMBER, "0")),
        (D, "1e10", (NUMBER, "10000000000")),
        (D, " ", (TEXT, "")),
    ],
)
def test_serials_are_dates_by_their_format(tmp_path: Path, style: int, serial: str, cell: Cell) -> None:
    styles = styles_xml(0, "yyyy-mm-dd", "hh:mm", "yyyy-mm-dd hh:mm")
    assert cells_of(tmp_path, number(serial, style=style), number("1", style=0), styles=styles)[0] == cell


@pytest.mark.parametrize(
    ("style", "serial", "cell"),
    [
        (D, "0", (DATE, "1904-01-01")),
        (D, "43538", (DATE, "2023-03-15")),
        (B, "0.5", (DATETIME, "1904-01-01T12:00:00")),
        (T, "0.5", (TIME, "12:00:00")),
        (D, "2957003", (DATE, "9999-12-31")),
        (D, "2957004", (NUMBER, "2957004")),
    ],
)
def test_serials_of_the_1904_calendar(tmp_path: Path, style: int, serial: str, cell: Cell) -> None:
    styles = styles_xml(0, "yyyy-mm-dd", "hh:mm", "yyyy-mm-dd hh:mm")
    rows = f'<row r="1"><c r="A1" s="{int(style)}"><v>{serial}</v></c></row>'
    found = read(one_sheet(tmp_path, rows, styles=styles, properties='<workbookPr date1904="1"/>'))
    assert found.rows == {1: [cell]}


@pytest.mark.parametrize(("built_in", "kind"), [(14, DATE), (22, DATETIME), (20, DATETIME), (46, NUMBER), (2, NUMBER)])
def test_built_in_formats(tmp_path: Path, built_in: int, kind: object) -> None:
    assert cells_of(tmp_path, number("45000", style=0), styles=styles_xml(built_in))[0][0] is kind


def test_iso_dates(tmp_path: Path) -> None:
    styles = styles_xml(0, "yyyy-mm-dd")
    cells = ["2023-03-15", "2023-03-15T10:00:00", "2023-03-15T10:00:00.5Z", "10:30:00", "T10:30"]
    assert cells_of(
        tmp_path,
        *(f' t="d"><v>{cell}</v></c>' for cell in cells),
        ' s="1" t="d"><v>2023-03-15T00:00:00</v></c>',
        styles=styles,
    ) == [
        (DATE, "2023-03-15"),
        (DATETIME, "2023-03-15T10:00:00"),
        (DATETIME, "2023-03-15T10:00:00.500"),
        (TIME, "10:30:00"),
        (TIME, "10:30:00"),
        (DATE, "2023-03-15"),
    ]


@pytest.mark.parametrize(
    "cell", ['t="d"><v>2023-02-30', 't="d"><v>soon', 't="b"><v>maybe', 't="zz"><v>1', 't="s"><v>7']
)
def test_a_damaged_cell_costs_its_row(tmp_path: Path, cell: str) -> None:
    rows = f'<row r="3"><c r="A3" {cell}</v></c><c r="B3"><v>1</v></c></row><row r="4"><c r="A4"><v>4</v></c></row>'
    found = read(one_sheet(tmp_path, rows), width=2)
    assert found.texts == {4: ["4", ""]}
    assert [(bad.row, bad.code) for bad in found.bad] == [(3, "damaged_cell")]


def test_a_style_that_is_not_there_is_no_format(tmp_path: Path) -> None:
    assert cells_of(tmp_path, number("45000", style=99), number("45000", style=10**8)) == [(NUMBER, "45000")] * 2


def test_strict_workbooks_are_read_like_others(tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1" t="d"><v>2023-03-15</v></c></row>'
    sheet = sheet_xml(rows, main="http://purl.oclc.org/ooxml/spreadsheetml/main")
    assert read(write(tmp_path / "s.xlsx", parts(sheet, strict=True))).rows == {1: [(DATE, "2023-03-15")]}

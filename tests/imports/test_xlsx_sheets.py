"""Sheets of a workbook: which one is read, and which rows with which numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from imports.workbooks import (
    MAIN,
    NUMBER,
    PACKAGE,
    RELATIONS,
    TEXT,
    one_sheet,
    parts,
    read,
    shared_xml,
    sheet_xml,
    write,
)
from rowlock import errors
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook import open_workbook


def value(reference: str, number: int) -> str:
    return f'<c r="{reference}"><v>{number}</v></c>'


def three_sheets(path: Path) -> Path:
    """A chart, a hidden sheet, and two that are visible, in another order than their parts."""
    book = parts("")
    book["xl/workbook.xml"] = (
        f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets><sheet name="Chart" sheetId="9" r:id="c"/>'
        '<sheet name="Old" sheetId="1" state="hidden" r:id="a"/><sheet name="AP Data" sheetId="7" r:id="z"/>'
        '<sheet name="Budget" sheetId="3" r:id="b"/></sheets></workbook>'
    )
    relation = '<Relationship Id="{}" Type="' + RELATIONS + '/{}" Target="{}"/>'
    book["xl/_rels/workbook.xml.rels"] = (
        f'<Relationships xmlns="{PACKAGE}">'
        + relation.format("c", "chartsheet", "chartsheets/sheet1.xml")
        + relation.format("a", "worksheet", "worksheets/sheet1.xml")
        + relation.format("b", "worksheet", "/xl/worksheets/sheet2.xml")
        + relation.format("z", "worksheet", ".\\WORKSHEETS\\Sheet3.xml")
        + "</Relationships>"
    )
    book["xl/worksheets/sheet1.xml"] = sheet_xml(f'<row r="1">{value("A1", 1)}</row>')
    book["xl/worksheets/sheet2.xml"] = sheet_xml(f'<row r="1">{value("A1", 2)}</row>')
    book["XL\\worksheets\\sheet3.xml"] = sheet_xml(f'<row r="1">{value("A1", 3)}</row>')
    return write(path, book)


@pytest.mark.parametrize(
    ("name", "number"),
    [(None, "3"), ("AP Data", "3"), ("Budget", "2"), ("Old", "1"), (" ap  data ", "3"), ("BUDGET", "2")],
)
def test_the_sheet_is_found_by_name_or_is_the_first_visible(tmp_path: Path, name: str | None, number: str) -> None:
    assert read(three_sheets(tmp_path / "b.xlsx"), sheet=name).texts == {1: [number]}


@pytest.mark.parametrize("name", ["Sheet1", "Chart", ""])
def test_an_unknown_sheet_is_refused_with_the_names_there_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.FileRefused, match='It has: "Old", "AP Data", "Budget"') as refused:
        read(three_sheets(tmp_path / "b.xlsx"), sheet=name)
    assert refused.value.code == "sheet_not_found"
    assert refused.value.more == {"sheets": ["Old", "AP Data", "Budget"]}


def test_a_workbook_of_charts_alone_is_not_called_damaged(tmp_path: Path) -> None:
    book = parts(sheet_xml(""))
    relations = str(book["xl/_rels/workbook.xml.rels"])
    book["xl/_rels/workbook.xml.rels"] = relations.replace("/worksheet", "/chartsheet", 1)
    with pytest.raises(errors.FileRefused, match="only charts or macros") as refused:
        read(write(tmp_path / "charts.xlsx", book))
    assert refused.value.code == "empty_file"


def test_rows_have_the_numbers_of_the_sheet_and_blank_ones_are_left_out(tmp_path: Path) -> None:
    rows = (
        f'<row r="2">{value("A2", 2)}</row><row r="3"/><row r="4" s="1" customFormat="1"><c r="A4" s="1"/></row>'
        f'<row r="5"><c r="A5" t="s"><v>0</v></c></row>\n<row r="9" spans="1:1">\n{value("A9", 9)}\n</row>'
    )
    found = read(one_sheet(tmp_path, rows, shared=shared_xml("<t></t>")))
    assert found.texts == {2: ["2"], 9: ["9"]}


def test_rows_and_cells_without_a_reference_follow_each_other(tmp_path: Path) -> None:
    rows = (
        "<row><c><v>1</v></c><c/><c><v>3</v></c></row>"
        f'<row r="5"><c><v>1</v></c>{value("C5", 3)}<c><v>4</v></c></row>'
        '<row><c t="str"><v>x</v></c></row>'
        f"<row>{value('B7', 2)}</row>"
    )
    assert read(one_sheet(tmp_path, rows), width=4).texts == {
        1: ["1", "", "3", ""],
        5: ["1", "", "3", "4"],
        6: ["x", "", "", ""],
        7: ["", "2", "", ""],
    }


def test_rows_out_of_order_keep_their_numbers(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}">{value(f"A{n}", n)}</row>' for n in (7, 3, 5))
    path = one_sheet(tmp_path, rows)
    assert read(path).texts == {7: ["7"], 3: ["3"], 5: ["5"]}
    assert read(path, header_row=3).texts == {7: ["7"], 5: ["5"]}
    source = open_workbook(path, sheet=None, limits=ReadLimits())
    assert [row.row for row in source.head(10)] == [3, 5, 7]
    source.close()


def test_cells_out_of_order_go_where_they_belong(tmp_path: Path) -> None:
    assert read(one_sheet(tmp_path, f'<row r="1">{value("B1", 2)}{value("A1", 1)}</row>'), width=2).texts == {
        1: ["1", "2"]
    }


def test_the_same_row_twice_is_refused(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}">{value(f"A{n}", n)}</row>' for n in (1, 2, 1))
    with pytest.raises(errors.FileRefused, match="row 1 occurs twice") as refused:
        read(one_sheet(tmp_path, rows))
    assert refused.value.code == "damaged_file"


@pytest.mark.parametrize("number", ["0", "-1", "1048577", "99999999999999999999", "1.5", "x", ""])
def test_a_row_number_that_no_sheet_has_is_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(errors.FileRefused) as refused:
        read(one_sheet(tmp_path, f'<row r="{number}"><c><v>1</v></c></row>'))
    assert refused.value.code == "damaged_file"


@pytest.mark.parametrize("reference", ["A0", "1", "A", "AAAA1", "XFE1", "ZZZ1", "A2", "$A$1", "", "A01", "Ä1"])
def test_a_bad_reference_costs_its_row(tmp_path: Path, reference: str) -> None:
    rows = f'<row r="1"><c r="{reference}"><v>1</v></c></row><row r="2">{value("A2", 2)}</row>'
    found = read(one_sheet(tmp_path, rows))
    assert found.texts == {2: ["2"]}
    assert [(bad.row, bad.code) for bad in found.bad] == [(1, "damaged_cell")]


def test_a_column_twice_in_a_row_costs_the_row(tmp_path: Path) -> None:
    found = read(one_sheet(tmp_path, f'<row r="1">{value("A1", 1)}{value("A1", 2)}</row>'))
    assert [(bad.row, bad.code) for bad in found.bad] == [(1, "damaged_cell")]
    assert "Column A" in found.bad[0].reason


def test_cells_beyond_the_header_are_named_and_blank_ones_ignored(tmp_path: Path) -> None:
    rows = (
        f'<row r="1">{value("A1", 1)}<c r="AB1" s="1"/><c r="AC1" t="s"><v>0</v></c></row>'
        f'<row r="2">{value("A2", 2)}{value("AB2", 7)}</row>'
    )
    found = read(one_sheet(tmp_path, rows, shared=shared_xml("<t> </t>")))
    assert found.texts == {1: ["1"]}
    assert [(bad.row, bad.code, bad.cells) for bad in found.bad] == [(2, "too_many_cells", ("2",))]
    assert "AB2" in found.bad[0].reason


def test_merged_cells_have_their_value_once(tmp_path: Path) -> None:
    rows = f'<row r="1">{value("A1", 1)}<c r="B1"/></row><row r="2"><c r="A2"/>{value("B2", 2)}</row>'
    sheet = sheet_xml(rows, after='<mergeCells count="1"><mergeCell ref="A1:B1"/></mergeCells>')
    assert read(write(tmp_path / "m.xlsx", parts(sheet)), width=2).texts == {1: ["1", ""], 2: ["", "2"]}


def test_hidden_rows_and_columns_are_read_and_told_of(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}" hidden="{n % 2}">{value(f"A{n}", n)}</row>' for n in range(1, 8))
    sheet = sheet_xml(rows, before='<cols><col min="1" max="1" hidden="1"/></cols>')
    found = read(write(tmp_path / "h.xlsx", parts(sheet)))
    assert list(found.rows) == [1, 2, 3, 4, 5, 6, 7]
    assert found.notices == ["4 hidden rows were read, too."]


@pytest.mark.parametrize(
    "dimension", ['<dimension ref="A1"/>', '<dimension ref="A1:XFD1048576"/>', '<dimension ref="?"/>', ""]
)
def test_what_the_sheet_says_about_its_size_is_ignored(tmp_path: Path, dimension: str) -> None:
    sheet = sheet_xml(f'<row r="3">{value("C3", 1)}</row>', before=dimension)
    assert read(write(tmp_path / "d.xlsx", parts(sheet)), width=3).texts == {3: ["", "", "1"]}


def test_prefixed_names_are_read(tmp_path: Path) -> None:
    sheet = (
        f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData><x:row r="1">'
        f'<x:c r="A1" t="inlineStr"><x:is><x:t>a</x:t></x:is></x:c>'
        '<c r="B1"><v>foreign</v></c></x:row></x:sheetData></x:worksheet>'
    )
    assert read(write(tmp_path / "p.xlsx", parts(sheet)), width=2).rows == {1: [(TEXT, "a"), (TEXT, "")]}


def test_comments_cdata_and_instructions_are_xml_too(tmp_path: Path) -> None:
    rows = (
        f'<row r="1">{value("A1", 1)}</row><!-- </row> -->'
        '<row r="2"><c r="A2" t="str"><v>a<![CDATA[</v></row><b>]]>c</v></c>'
        f'</row><?x </row>?><row r="3"><c r="A3"><v>3<!-- 4 --></v></c></row>'
    )
    assert read(one_sheet(tmp_path, rows)).rows == {
        1: [(NUMBER, "1")],
        2: [(TEXT, "a</v></row><b>c")],
        3: [(NUMBER, "3")],
    }


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "utf-8-sig"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    declared = {"utf-16-le": "UTF-16LE", "utf-8-sig": "UTF-8"}.get(encoding, encoding)
    text = sheet_xml('<row r="1"><c r="A1" t="str"><v>Zoë</v></c></row>').replace('"UTF-8"', f'"{declared}"')
    assert read(write(tmp_path / "e.xlsx", parts("") | {"xl/worksheets/sheet1.xml": text.encode(encoding)})).texts == {
        1: ["Zoë"]
    }


def test_the_head_is_the_first_rows_that_are_not_blank(tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1" t="str"><v> </v></c></row>' + "".join(
        f'<row r="{n}">{value(f"B{n}", n)}<c r="C{n}" s="2"/></row>' for n in range(2, 60)
    )
    source = open_workbook(one_sheet(tmp_path, rows), sheet=None, limits=ReadLimits())
    head = source.head(3)
    assert [(row.row, row.cells) for row in head] == [(2, ("", "2")), (3, ("", "3")), (4, ("", "4"))]
    assert sum(batch.frame.height for batch in source.batches(2, 2)) == 57
    source.close()


def test_a_sheet_without_rows_is_empty(tmp_path: Path) -> None:
    for sheet in (sheet_xml(""), sheet_xml("").replace("<sheetData></sheetData>", "<sheetData/>")):
        path = write(tmp_path / "n.xlsx", parts(sheet))
        assert read(path).rows == {}
        source = open_workbook(path, sheet=None, limits=ReadLimits())
        assert source.head(5) == []
        source.close()


def test_batches_are_bounded_and_progress_grows(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}">{value(f"A{n}", n)}</row>' for n in range(1, 45_001))
    source = open_workbook(one_sheet(tmp_path, rows), sheet=None, limits=ReadLimits())
    batches = list(source.batches(0, 1))
    assert max(batch.frame.height for batch in batches) <= 20_000
    assert sum(batch.frame.height for batch in batches) == 45_000
    done = [batch.done for batch in batches]
    assert done == sorted(done)
    assert done[-1] == 1.0
    source.close()
    small = ReadLimits(block_bytes=100_000)
    assert max(len(found) for found in [read(one_sheet(tmp_path, rows), limits=small).rows]) == 45_000


def test_many_cells_that_share_a_long_text_come_in_small_batches(tmp_path: Path) -> None:
    rows = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 3001))
    path = one_sheet(tmp_path, rows, shared=shared_xml(f"<t>{'x' * 30_000}</t>"))
    source = open_workbook(path, sheet=None, limits=ReadLimits(block_bytes=1 << 20))
    batches = list(source.batches(0, 1))
    assert sum(batch.frame.height for batch in batches) == 3000
    assert max(batch.frame["c0"].str.len_bytes().sum() for batch in batches) <= 5 << 20
    source.close()

"""Records: cells, lines, and the effect of malformed records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.imports.csv_files import SMALL, read

from rowlock.errors import FileRefused
from rowlock.imports.read.delimited import open_delimited
from rowlock.imports.read.limits import ReadLimits

A3 = "a,b,c\n"

GOOD = {
    "plain": (A3 + "1,2,3\n", [(2, ("1", "2", "3"))]),
    "no line break at the end": (A3 + "1,2,3", [(2, ("1", "2", "3"))]),
    "CRLF": ("a,b,c\r\n1,2,3\r\n4,5,6\r\n", [(2, ("1", "2", "3")), (3, ("4", "5", "6"))]),
    "CRLF with quotes": ('a,b\r\n"1,1",2\r\n3,"4"\r\n', [(2, ("1,1", "2")), (3, ("3", "4"))]),
    "lone CR": ("a,b\r1,2\r3,4\r", [(2, ("1", "2")), (3, ("3", "4"))]),
    "lone CR, none at the end": ("a,b\r1,2\r3,4", [(2, ("1", "2")), (3, ("3", "4"))]),
    "lone CR with LF inside quotes": ('a,b\r"1\n1",2\r3,4\r', [(2, ("1\n1", "2")), (3, ("3", "4"))]),
    "all three line ends": ("a,b\n1,2\r3,4\r\n5,6\n", [(2, ("1", "2")), (3, ("3", "4")), (4, ("5", "6"))]),
    "mostly CR, some CRLF": (
        "a,b\r1,2\r3,4\r5,6\r\n7,8\r\r\n9,0\r",
        [(2, ("1", "2")), (3, ("3", "4")), (4, ("5", "6")), (5, ("7", "8")), (7, ("9", "0"))],
    ),
    "CR CR LF makes a blank row": ("a,b\r\r\n1,2\r\r\n", [(3, ("1", "2"))]),
    "LF in quotes": ('a,b\n"1\n2",3\n4,5\n', [(2, ("1\n2", "3")), (3, ("4", "5"))]),
    "CRLF in quotes is kept": ('a,b\r\n"1\r\n2",3\r\n4,5\r\n', [(2, ("1\r\n2", "3")), (3, ("4", "5"))]),
    "CR in quotes is kept": ('a,b\n"1\r2",3\n', [(2, ("1\r2", "3"))]),
    "blank lines in quotes": ('a,b\n"1\n\n\n2",3\n', [(2, ("1\n\n\n2", "3"))]),
    "two cells with line breaks": ('a,b\n"1\n2","3\n4"\n5,6\n', [(2, ("1\n2", "3\n4")), (3, ("5", "6"))]),
    "delimiter in quotes": (A3 + '"1,1",2,3\n', [(2, ("1,1", "2", "3"))]),
    "doubled quotes": (A3 + '"say ""hi""",2,3\n', [(2, ('say "hi"', "2", "3"))]),
    "only a doubled quote": (A3 + '"""",2,3\n', [(2, ('"', "2", "3"))]),
    "only two doubled quotes": (A3 + '"""""",2,3\n', [(2, ('""', "2", "3"))]),
    "empty quoted cells": (A3 + '"",2,""\n', [(2, ("", "2", ""))]),
    "JSON in a cell": (
        A3 + '1,"{""type"": ""Point"", ""at"": [1,2]}",3\n',
        [(2, ("1", '{"type": "Point", "at": [1,2]}', "3"))],
    ),
    "quoted header": ('"a","b"\n1,2\n', [(2, ("1", "2"))]),
    "inches": (A3 + '5" pipe,2,3\n4,6",5\n', [(2, ('5" pipe', "2", "3")), (3, ("4", '6"', "5"))]),
    "quotes in the middle": (A3 + 'the "big" one,2,3\n', [(2, ('the "big" one', "2", "3"))]),
    "spaces are kept": (A3 + " 1 ,  2,3  \n", [(2, (" 1 ", "  2", "3  "))]),
    "spaces in quotes are kept": (A3 + '" 1 ",2,3\n', [(2, (" 1 ", "2", "3"))]),
    "spaces after a closing quote": (A3 + '"1" ,"2"  ,"3" \n', [(2, ("1", "2", "3"))]),
    "spaces before an opening quote": ('a, b\n"1", "2, 2"\n"3", "4"\n', [(2, ("1", "2, 2")), (3, ("3", "4"))]),
    "blank rows count": (A3 + "\n1,2,3\n\n\n4,5,6\n", [(3, ("1", "2", "3")), (6, ("4", "5", "6"))]),
    "rows of delimiters are blank": (A3 + ",,\n1,2,3\n,,\n", [(3, ("1", "2", "3"))]),
    "rows of white space are blank": (A3 + "  \n \t, \xa0,\u3000\n1,2,3\n   ", [(4, ("1", "2", "3"))]),
    "rows of empty quotes are blank": (A3 + '"","",""\n""\n1,2,3\n', [(4, ("1", "2", "3"))]),
    "blank lines first": ("\n\na,b\n1,2\n", [(4, ("1", "2"))]),
    "extra blank cells": (A3 + "1,2,3,,  ,\n", [(2, ("1", "2", "3"))]),
    "empty cells": (A3 + ",2,\n1,,\n", [(2, ("", "2", "")), (3, ("1", "", ""))]),
    "NUL": (A3 + "1,\0,3\n", [(2, ("1", "\0", "3"))]),
    "NUL in quotes": (A3 + '1,"\0,",3\n', [(2, ("1", "\0,", "3"))]),
    "U+FFFD that was there": (A3 + "1,\ufffd,3\n", [(2, ("1", "\ufffd", "3"))]),
    "line separators of Unicode": (A3 + "1,x\u2028y\x85z,3\n", [(2, ("1", "x\u2028y\x85z", "3"))]),
    "vertical tab and form feed": (A3 + "1,x\x0by\x0cz\x1c,3\n", [(2, ("1", "x\x0by\x0cz\x1c", "3"))]),
    "a mark in the middle": (A3 + "\ufeff1,2,3\n", [(2, ("\ufeff1", "2", "3"))]),
    "emoji and ideographs": (A3 + "🎉,日本,ß\n", [(2, ("🎉", "日本", "ß"))]),
    "hash is no comment": (A3 + "#1,2,3\n", [(2, ("#1", "2", "3"))]),
    "words for nothing": (A3 + "NULL,NA,nan\n", [(2, ("NULL", "NA", "nan"))]),
    "numbers stay text": (A3 + "007,1e5,1.10\n", [(2, ("007", "1e5", "1.10"))]),
    "formulas are text": (A3 + "=1+1,@x,-2\n", [(2, ("=1+1", "@x", "-2"))]),
    "end-of-file character of DOS": (A3 + "1,2,3\r\n\x1a", [(2, ("1", "2", "3"))]),
    "only a header": (A3, []),
    "only a header, no line break": ("a,b,c", []),
    "one column": ("name\nAnn\nBo\n", [(2, ("Ann",)), (3, ("Bo",))]),
    "one column, quoted": ('name\n"Ann"\n"B\no"\n""\nC', [(2, ("Ann",)), (3, ("B\no",)), (5, ("C",))]),
    "a cell of 99 line breaks": ('a,b\n"' + "x\n" * 99 + '",2\n', [(2, ("x\n" * 99, "2"))]),
    "a cell of 300 line breaks that fits": (
        'a,b\n"' + "x\n" * 300 + '",2\n3,4\n',
        [(2, ("x\n" * 300, "2")), (3, ("3", "4"))],
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_well_formed_is_read_as_it_is(case: str) -> None:
    content, rows = GOOD[case]
    found = read(content)
    assert (found.rows, found.bad) == (rows, [])


BAD = {
    "too many cells": (
        A3 + "1,2,3,4\n5,6,7\n",
        [(3, ("5", "6", "7"))],
        [(2, "too_many_cells")],
        "line 2 has 4 cells where the header has 3",
    ),
    "unclosed at the end": (
        A3 + '1,2,3\n4,"5,6\n',
        [(2, ("1", "2", "3"))],
        [(3, "unclosed_quote")],
        "the quote opened at line 3 is never closed",
    ),
    "unclosed, then good rows": (A3 + '4,"5,6\n7,8,9\n', [(3, ("7", "8", "9"))], [(2, "unclosed_quote")], "line 2"),
    "unclosed before quoted rows": (
        A3 + '1,"2,3\n4,"5",6\n"7","8","9"\n',
        [(3, ("4", "5", "6")), (4, ("7", "8", "9"))],
        [(2, "unclosed_quote")],
        "line 2",
    ),
    "unclosed in the last line": (A3 + '1,2,3\n4,5,"6', [(2, ("1", "2", "3"))], [(3, "unclosed_quote")], "line 3"),
    "unclosed after a good line break": (
        A3 + '"1\n1",2,"3\n4,5,6\n',
        [(3, ("4", "5", "6"))],
        [(2, "unclosed_quote")],
        "the quote opened at line 3 is never closed",
    ),
    "text after a quote": (A3 + '"1"x,2,3\n4,5,6\n', [(3, ("4", "5", "6"))], [(2, "text_after_quote")], "line 2"),
    "quotes not doubled": (
        'a,b\n"x","y"\n"say "hi" now",2\n3,4\n',
        [(2, ("x", "y")), (4, ("3", "4"))],
        [(3, "text_after_quote")],
        "line 3",
    ),
    "cut off": (A3 + "1,2,3\n4,5", [(2, ("1", "2", "3"))], [(3, "truncated_record")], "after 2 of 3 cells"),
    "too long": (
        A3 + "1," + "x" * 1001 + ",3\n4,5,6\n",
        [(3, ("4", "5", "6"))],
        [(2, "cell_too_long")],
        "more than 1,000 characters",
    ),
    "too long in quotes": (
        A3 + '1,"' + "x" * 5000 + '",3\n4,5,6\n',
        [(3, ("4", "5", "6"))],
        [(2, "cell_too_long")],
        "1,000",
    ),
    "several": (
        A3 + '1,2,3,4\n5,6,7\n"8"8,9,0\n"1\n1",2,3\n4,5,6,7\n8,9,0\n',
        [(3, ("5", "6", "7")), (5, ("1\n1", "2", "3")), (7, ("8", "9", "0"))],
        [(2, "too_many_cells"), (4, "text_after_quote"), (6, "too_many_cells")],
        "line 7 has 4 cells",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_record_costs_itself_and_says_why(case: str) -> None:
    content, rows, bad, reason = BAD[case]
    found = read(content)
    assert (found.rows, found.bad) == (rows, bad)
    assert reason in found.reasons[-1]


def test_a_bad_record_shows_what_could_be_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'a,b\n1,2,3\n4,"5\n\xc3\xa9\xc3\xa9,\xe9\n')
    bad = [record for batch in open_delimited(path, name="x.csv", limits=SMALL).batches(1, 2) for record in batch.bad]
    assert [record.cells for record in bad] == [("1", "2", "3"), ("4", "5"), ("éé", "\\xe9")]


def test_a_quote_that_is_closed_only_far_below_costs_one_line() -> None:
    rows = "".join(f"{n},{n}\n" for n in range(150))
    found = read('a,b\n1,"2\n' + rows + 'x,y",z\n5,6\n')
    assert found.bad == [(2, "unclosed_quote"), (153, "too_many_cells")]
    assert found.rows[0] == (3, ("0", "0"))
    assert found.rows[-1] == (154, ("5", "6"))
    assert len(found.rows) == 151


def test_short_rows_are_filled_and_counted_in_a_notice() -> None:
    found = read("a,b,c\n1\n2,3\n\n4,5,6\n")
    assert found.rows == [(2, ("1", "", "")), (3, ("2", "3", "")), (5, ("4", "5", "6"))]
    assert found.notices == ["2 rows have fewer cells than the header; the missing cells were read as empty"]


def test_rows_below_the_header_are_read_wherever_it_is() -> None:
    found = read('Report of May\n"made\nby",Ann\n\na,b\n1,2\n3,4\n', header_row=4)
    assert found.head == [
        (1, ("Report of May",)),
        (2, ("made\nby", "Ann")),
        (4, ("a", "b")),
        (5, ("1", "2")),
        (6, ("3", "4")),
    ]
    assert found.rows == [(5, ("1", "2")), (6, ("3", "4"))]


def test_the_head_is_no_longer_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("\na,b\n\n1,2\n3,4\n5,6\n")
    head = open_delimited(path, name="x.csv", limits=SMALL).head(2)
    assert [(row.row, row.cells) for row in head] == [(2, ("a", "b")), (4, ("1", "2"))]


def test_a_header_with_too_many_columns_refuses_the_file() -> None:
    with pytest.raises(FileRefused) as refused:
        read(",".join(f"c{n}" for n in range(51)) + "\n1,2\n")
    assert refused.value.code == "too_many_columns"


def test_a_header_at_the_limit_of_columns_is_read() -> None:
    line = ",".join(str(n) for n in range(50)) + "\n"
    assert read(line + line).cells == [tuple(str(n) for n in range(50))]


def test_blank_cells_past_the_limit_of_columns_do_not_count() -> None:
    found = read("a,b" + "," * 20_000 + "\n1,2" + "," * 5_000 + "\n")
    assert found.cells == [("1", "2") + ("",) * 48]


@pytest.mark.parametrize("limits", [SMALL, ReadLimits()])
def test_a_hundred_thousand_columns_are_refused(limits: ReadLimits) -> None:
    with pytest.raises(FileRefused) as refused:
        read(",".join(["x"] * 100_000) + "\n", limits=limits)
    assert refused.value.code == "too_many_columns"


def test_a_row_of_a_hundred_thousand_cells_costs_itself() -> None:
    found = read(
        "a,b\n1,2\n" + ",".join(["x"] * 100_000) + '\n"1",' + ",".join(["x"] * 100_000) + "\n3,4\n", limits=ReadLimits()
    )
    assert found.rows == [(2, ("1", "2")), (5, ("3", "4"))]
    assert found.bad == [(3, "too_many_cells"), (4, "too_many_cells")]


def test_a_line_longer_than_any_record_may_be_costs_itself() -> None:
    limits = ReadLimits(columns_max=10, cell_chars_max=100, block_bytes=1_000)
    found = read("a,b\n1,2\n" + "x" * 3_000_000 + "\n3,4\n" + 'y,"' + "z" * 5_000, limits=limits)
    assert found.rows == [(2, ("1", "2")), (4, ("3", "4"))]
    assert found.bad == [(3, "record_too_long"), (5, "record_too_long")]


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("line_end", ["\n", "\r"])
def test_a_line_that_is_too_long_costs_its_record_wherever_it_is_cut(shift: int, line_end: str) -> None:
    long = "x" * shift + "\U0001f600" * 70_000
    for last in ("5,6,7" + line_end, ""):
        found = read(line_end.join(["a,b,c", "1,2,3", long, last]))
        assert found.bad == [(3, "record_too_long")]
        assert found.rows == [(2, ("1", "2", "3")), (4, ("5", "6", "7"))][: 1 + bool(last)]


def test_a_file_of_lone_line_ends_that_the_sample_did_not_show_stays_bounded() -> None:
    limits = ReadLimits(columns_max=10, cell_chars_max=100, block_bytes=1_000)
    sample = "a,b\n" + "1,2\n" * 70_000
    found = read(sample + "3,4\r" * 5_000 + "5,6", limits=limits)
    assert len(found.rows) == 75_001
    assert found.rows[-1] == (75_002, ("5", "6"))
    assert found.bad == []

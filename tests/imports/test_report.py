"""errors.csv: the user's own rows with the reasons, without cells that a spreadsheet program would run."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.imports.error_report import errors_csv, inert, template_csv
from rowlock.storage.imports import ErrorPage, ErrorRow, RowError

FORMULA = tuple("=+-@\t\r\n＝＋－＠−")


async def written(header: list[str], rows: list[ErrorRow], per_page: int = 500) -> bytes:
    async def page(after_row: int, limit: int) -> ErrorPage:
        rest = [row for row in rows if row.row > after_row]
        some = rest[: min(per_page, limit)]
        return ErrorPage(some, some[-1].row if len(rest) > len(some) else None)

    return b"".join([part async for part in errors_csv(header, page)])


def cells(data: bytes, delimiter: str = ",") -> list[list[str]]:
    text = data.decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def bad(row: int, values: list[str], *errors: tuple[str | None, str]) -> ErrorRow:
    return ErrorRow(row, [RowError(row, column, "bad", reason) for column, reason in errors], values)


async def test_the_rows_are_the_users_own_with_row_column_and_reason(tmp_path: object) -> None:
    rows = [
        bad(3, ["Ada", "ada"], ("E-mail", "not an e-mail address")),
        bad(7, ["", "x"], ("Name", "is missing"), ("E-mail", "not an e-mail address")),
        bad(9, ["only"], (None, "too few cells")),
    ]
    data = await written(["Name", "E-mail"], rows, per_page=2)
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\r\n") == data.count(b"\n") == 4
    assert cells(data) == [
        ["Name", "E-mail", "row", "column", "reason"],
        ["Ada", "ada", "3", "E-mail", "not an e-mail address"],
        ["", "x", "7", "Name, E-mail", "Name: is missing; E-mail: not an e-mail address"],
        ["only", "", "9", "", "too few cells"],
    ]


async def test_our_columns_are_never_called_like_the_users() -> None:
    data = await written(["Row", "reason"], [])
    assert cells(data) == [["Row", "reason", "import row", "column", "import reason"]]


def test_a_template_is_the_header() -> None:
    assert template_csv(["Name", "E-mail"]) == b'\xef\xbb\xbf"Name","E-mail"\r\n'


@pytest.mark.parametrize(
    ("cell", "safe"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a-b", "a-b"),
        ("a@b.c", "a@b.c"),
        ("=1+1", "'=1+1"),
        ("-5", "'-5"),
        ("+49 30", "'+49 30"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("  =1", "'  =1"),
        ('"=1', "'\"=1"),
        ("'=1", "''=1"),
        ("＝1", "'＝1"),
        ("a;=1", "a;'=1"),
        ("a\n=1", "a\n'=1"),
        ("\ufeff=1", "'\ufeff=1"),
    ],
)
def test_what_might_be_a_formula_gets_an_apostrophe(cell: str, safe: str) -> None:
    assert inert(cell) == safe


dangerous = st.text(st.sampled_from("=+-@\t\r\n ;,|'\"＝＋－＠ab1\u00a0\ufeff"), max_size=12) | st.text(max_size=12)


@given(header=st.lists(dangerous, min_size=1, max_size=3), row=st.lists(dangerous, max_size=4), reason=dangerous)
async def test_no_cell_begins_as_a_formula_does_however_the_file_is_read(
    header: list[str], row: list[str], reason: str
) -> None:
    """I21, also where a program cuts at semicolons or tabs: then its cells begin elsewhere."""
    data = await written(header, [bad(2, row, (header[0], reason))])
    for line in cells(data):
        assert not [cell for cell in line if cell.startswith(FORMULA)], line
    for delimiter in ",;\t|":
        for line in cells(data, delimiter):
            begins = [cell.lstrip(' "\t\r\n\u00a0\ufeff') for cell in line]
            assert not [cell for cell in begins if cell.startswith(tuple("=+-@＝＋－＠"))], (delimiter, line)
    assert [len(line) for line in cells(data)] == [len(header) + 3] * 2

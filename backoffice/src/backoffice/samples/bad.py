"""The bad sample files: small, with one known error each. Their good rows have keys that no good file has, except the
known components in Price-List-Components-unknown-item.csv."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import islice
from typing import Any, BinaryIO

from backoffice.samples import rows
from backoffice.samples.good import (
    BUDGET_HEADER_ROW,
    Sample,
    budget_sheet,
    csv_bytes,
    payables_sheets,
)
from backoffice.samples.outcome import BadCell, Outcome
from backoffice.samples.workbook import Formula, Sheet, write_workbook

_FAR = 900_000_000  # rows from here on have keys that no good file has
_ROWS = 30

Wrong = Sequence[tuple[str, Any, str]]  # column, what stands in its cell, the code of the error

_CUSTOMER_CELLS: Wrong = (
    ("E-mail Address", "", "required"),
    ("E-mail Address", "nobody at example.com", "bad_format"),
    ("Name", "", "required"),
    ("Name", "x" * 201, "too_long"),
    ("Country", "Germany", "bad_format"),
    ("Credit Limit", "a lot", "not_a_number"),
    ("Credit Limit", "12,5", "not_a_number"),
    ("Credit Limit", "1_000", "not_a_number"),
    ("Credit Limit", "NaN", "nan"),
    ("Credit Limit", "-5.00", "out_of_range"),
    ("Credit Limit", "12.345", "too_many_places"),
    ("Credit Limit", "99999999999999.00", "too_many_digits"),
    ("Newsletter", "maybe", "not_a_yes_no"),
    ("Customer Since", "31/12/2024", "not_a_date"),
    ("Customer Since", "45123", "not_a_date"),
)
_PAYABLE_CELLS: Wrong = (
    ("Amount", Formula("1/0", "#DIV/0!"), "cell_error"),
    ("Amount", Formula('VLOOKUP("x",A1:B2,2,0)', "#N/A"), "cell_error"),
    ("Amount", Formula("SUM(D2:D3)"), "no_value"),
    ("Amount", "much", "not_a_number"),
    ("Invoice Number", None, "required"),
    ("Invoice Date", None, "required"),
    ("Due Date", "31/12/2024", "not_a_date"),
    ("Paid On", 45_123, "not_a_date"),
)
_BUDGET_CELLS: Wrong = (
    ("Year", 1_850, "out_of_range"),
    ("Year", "next", "not_an_integer"),
    ("Category", None, "required"),
    ("Department", None, "required"),
    ("Budget", Formula("A1/0", "#DIV/0!"), "cell_error"),
)
_ITEM_CELLS: Wrong = (
    ("Cat", "", "required"),
    ("Sel", "A B", "bad_format"),
    ("Unit", "SQUARE FEET", "too_long"),
    ("Unit Price", "-1.00", "out_of_range"),
)
_LINE_CELLS: Wrong = (
    ("#", "0", "out_of_range"),
    ("#", "1.5", "not_an_integer"),
    ("Qty", "", "required"),
    ("Unit Cost", "12.345", "too_many_places"),
    ("Date", "yesterday", "not_a_date"),
)
_PART_CELLS: Wrong = (
    ("Component Code", "", "required"),
    ("Qty", "2,5", "not_a_number"),
    ("Taxable", "perhaps", "not_a_yes_no"),
)


def bad_files(seed: int) -> Iterator[Sample]:
    """Yield the bad files."""
    yield _sample("Customers-bad-cells.csv", "customers", "a bad cell of each kind", _bad_customers(seed))
    yield _sample("Customers-missing-column.csv", "customers", "no e-mail address anywhere", _missing_column(seed))
    yield _sample("Customers-duplicate-header.csv", "customers", "two columns for one field", _duplicate_header(seed))
    yield _sample("Customers-duplicate-keys.csv", "customers", "addresses twice: the last row wins", _twice(seed))
    yield _sample("Customers-empty.csv", "customers", "a header and nothing below", _empty())
    yield _sample("Customers-renamed.xlsx", "customers", "a CSV file with the wrong name", _renamed_csv(seed))
    yield _sample("Customers-unclosed-quote.csv", "customers", "a quote that is never closed", _unclosed_quote(seed))
    yield _sample("Customers-ragged.csv", "customers", "a row with more cells than the header", _ragged(seed))
    yield _sample("Customers-broken-encoding.csv", "customers", "a row that is not UTF-8", _broken_encoding(seed))
    yield _sample("Customers-windows-1252.csv", "customers", "another encoding: all is well", _windows(seed))
    yield _sample("Customers-utf-16.csv", "customers", "another encoding: all is well", _utf16(seed))
    yield _sample("Accounts-Payable-formula-errors.xlsx", "ap", "errors and formulas in cells", _bad_payables(seed))
    yield _sample("Accounts-Payable-wrong-sheet.xlsx", "ap", 'no sheet "AP Data"', _wrong_sheet(seed))
    yield _sample("Accounts-Payable-renamed.csv", "ap", "a workbook with the wrong name", _renamed_xlsx(seed))
    yield _sample("Budget-Forecast-bad-cells.xlsx", "budgetForecast", "a bad cell of each kind", _bad_budgets(seed))
    yield _sample(
        "Price-List-bad-cells.csv",
        "priceList",
        "a bad cell of each kind",
        _bad(_ITEM_CELLS, rows.ITEMS, _table(rows.items, seed)),
    )
    yield _sample(
        "Price-List-Components-unknown-item.csv", "priceListComponents", "items that do not exist", _unknown_item(seed)
    )
    yield _sample(
        "Xact-Raw-bad-cells.csv",
        "xactRaw",
        "a bad cell of each kind",
        _bad(_LINE_CELLS, rows.LINES, _table(rows.lines, seed)),
    )
    yield _sample(
        "Xact-Components-bad-cells.csv",
        "xactComponents",
        "a bad cell of each kind",
        _bad(_PART_CELLS, rows.PARTS, _table(rows.parts, seed)),
    )


Made = tuple[bytes, Outcome]


def _sample(name: str, type: str, about: str, made: Made) -> Sample:
    def write(to: BinaryIO) -> Outcome:
        to.write(made[0])
        return made[1]

    return Sample(f"bad/{name}", type, about, write)


def _table(made: Callable[[int, int, int], Iterator[list[Any]]], seed: int, place: int = 0) -> list[list[Any]]:
    return list(made(seed, _FAR + 1_000 * place, _ROWS))


def _spoil(table: list[list[Any]], header: Sequence[str], wrong: Wrong, first_row: int) -> list[BadCell]:
    """Put each bad cell into its own row, every other row, and return the expected errors."""
    errors = []
    for place, (column, cell, code) in enumerate(wrong):
        at = 2 * place
        table[at][header.index(column)] = cell
        errors.append(BadCell(first_row + at, column, code))
    return errors


def _bad(wrong: Wrong, header: Sequence[str], table: list[list[str]]) -> Made:
    errors = _spoil(table, header, wrong, 2)
    return csv_bytes([header, *table]), Outcome(len(table), errors=errors)


# -- customers -------------------------------------------------------------------------------------


def _customers(seed: int, place: int) -> list[list[str]]:
    return _table(rows.customers, seed, place)


def _bad_customers(seed: int) -> Made:
    table = _customers(seed, 0)
    errors = _spoil(table, rows.CUSTOMERS, _CUSTOMER_CELLS, 2)
    # Two errors in one row: both are reported, and one row counts as failed.
    table[0][rows.CUSTOMERS.index("Newsletter")] = "perhaps"
    errors.append(BadCell(2, "Newsletter", "not_a_yes_no"))
    return csv_bytes([rows.CUSTOMERS, *table]), Outcome(len(table), errors=errors)


def _missing_column(seed: int) -> Made:
    table = [row[1:] for row in _customers(seed, 1)]
    return csv_bytes([rows.CUSTOMERS[1:], *table]), Outcome(refused="missing_columns")


def _duplicate_header(seed: int) -> Made:
    table = [[*row, row[0]] for row in _customers(seed, 2)]
    return csv_bytes([[*rows.CUSTOMERS, "E-Mail"], *table]), Outcome(refused="duplicate_column")


def _twice(seed: int) -> Made:
    table = _customers(seed, 3)
    again = [[row[0].upper(), f"{row[1]} (corrected)", *row[2:]] for row in table[:5]]
    return csv_bytes([rows.CUSTOMERS, *table, *again]), Outcome(len(table) + len(again), duplicates=len(again))


def _empty() -> Made:
    return csv_bytes([rows.CUSTOMERS]), Outcome(refused="empty_file")


def _renamed_csv(seed: int) -> Made:
    data = csv_bytes([rows.CUSTOMERS, *_customers(seed, 4)])
    return data, Outcome(refused="file_content_mismatch", at_upload=True)


def _unclosed_quote(seed: int) -> Made:
    table = _customers(seed, 5)
    table[9][1], table[9][rows.CUSTOMERS.index("Credit Limit")] = "Emily Brown", ""  # no other quote in this row
    text = [csv_bytes([row]) for row in (rows.CUSTOMERS, *table)]
    text[10] = text[10].replace(b",", b',"', 1)
    return b"".join(text), Outcome(len(table), errors=[BadCell(11, None, "unclosed_quote")])


def _ragged(seed: int) -> Made:
    table = _customers(seed, 6)
    table[6] += ["one", "too many"]
    return csv_bytes([rows.CUSTOMERS, *table]), Outcome(len(table), errors=[BadCell(8, None, "too_many_cells")])


def _broken_encoding(seed: int) -> Made:
    table = _customers(seed, 7)
    table[4][1] = table[5][1] = "Zoë Ångström"
    text = [csv_bytes([row]) for row in (rows.CUSTOMERS, *table)]
    text[8] = csv_bytes([[table[7][0], "Ren\xe9e", *([""] * 8)]], "cp1252")
    return b"".join(text), Outcome(len(table), errors=[BadCell(9, None, "bad_encoding")])


def _windows(seed: int) -> Made:
    fitting = (row for row in rows.customers(seed, _FAR + 8_000, 20 * _ROWS) if _fits("".join(row)))
    table = list(islice(fitting, _ROWS))
    return csv_bytes([rows.CUSTOMERS, *table], "cp1252"), Outcome(len(table))


def _fits(text: str) -> bool:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def _utf16(seed: int) -> Made:
    table = _table(rows.customers, seed, 30)
    return csv_bytes([rows.CUSTOMERS, *table], "utf-16"), Outcome(len(table))


# -- workbooks -------------------------------------------------------------------------------------


def _workbook(sheets: Sequence[Sheet]) -> bytes:
    to = io.BytesIO()
    write_workbook(to, sheets)
    return to.getvalue()


def _bad_payables(seed: int) -> Made:
    table = _table(rows.payables, seed)
    errors = _spoil(table, rows.PAYABLES, _PAYABLE_CELLS, 2)
    # These are valid: a computed formula, a number and a date as text.
    table[-1][3] = Formula("100+23.45", "123.45")
    table[-2][3], table[-2][4] = "1,234.50", f"{date(2026, 1, 31):%m/%d/%Y}"
    return _workbook(payables_sheets(table)), Outcome(len(table), errors=errors)


def _wrong_sheet(seed: int) -> Made:
    table = _table(rows.payables, seed, 1)
    return _workbook(payables_sheets(table, "Data")), Outcome(refused="sheet_not_found")


def _renamed_xlsx(seed: int) -> Made:
    table = _table(rows.payables, seed, 2)
    return _workbook(payables_sheets(table)), Outcome(refused="file_content_mismatch", at_upload=True)


def _bad_budgets(seed: int) -> Made:
    table = list(rows.budgets(seed, 0, _ROWS))
    for row in table:
        row[2] = f"{row[2]} (sample)"
    errors = _spoil(table, rows.BUDGETS, _BUDGET_CELLS, BUDGET_HEADER_ROW + 1)
    return _workbook([budget_sheet(table)]), Outcome(len(table), errors=errors)


# -- prices ----------------------------------------------------------------------------------------


def _unknown_item(seed: int) -> Made:
    """Return the components of the price list's first item, and some of items that it does not have."""
    known = list(rows.components(seed, 0, rows.COMPONENTS_OF_ITEM))
    unknown = list(rows.components(seed, _FAR, 3))
    errors = [BadCell(2 + len(known) + place, "Cat", "unknown_item") for place in range(len(unknown))]
    return csv_bytes([rows.COMPONENTS, *known, *unknown]), Outcome(len(known) + len(unknown), errors=errors)

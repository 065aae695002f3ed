"""The good sample files, one for each import type of the reference application; every row is valid."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from backoffice.samples import rows
from backoffice.samples.outcome import Outcome
from backoffice.samples.workbook import Cell, Sheet, write_workbook

XLSX_ROWS_MAX = 100_000  # stays below the 10 MB limit of uploads

Write = Callable[[BinaryIO], Outcome]


@dataclass(frozen=True, slots=True)
class Sample:
    """One file: its path, its import type, what it is about, and the function that writes it."""

    path: str
    type: str
    about: str
    write: Write


def good_files(seed: int, count: int) -> Iterator[Sample]:
    """Yield the good files with `count` rows each; workbooks and budgets have limits of their own."""
    in_sheet = min(count, XLSX_ROWS_MAX)
    years = min(count, rows.BUDGETS_MAX)
    yield Sample("Customers.csv", "customers", "customers", _csv(rows.CUSTOMERS, rows.customers, seed, count))
    yield Sample("Accounts-Payable.xlsx", "ap", 'payables, sheet "AP Data"', _payables(seed, in_sheet))
    yield Sample("Budget-Forecast.xlsx", "budgetForecast", 'budgets, sheet "Budget"', _budgets(seed, years))
    yield Sample("Price-List.csv", "priceList", "items of a price list", _csv(rows.ITEMS, rows.items, seed, count))
    yield Sample(
        "Price-List-Components.csv",
        "priceListComponents",
        "components of these items: import the price list first",
        _csv(rows.COMPONENTS, rows.components, seed, count),
    )
    yield Sample("Xact-Raw.csv", "xactRaw", "lines of an estimate", _csv(rows.LINES, rows.lines, seed, count))
    yield Sample(
        "Xact-Components.csv", "xactComponents", "components of an estimate", _csv(rows.PARTS, rows.parts, seed, count)
    )


def csv_bytes(table: Iterable[Sequence[str]], encoding: str = "utf-8") -> bytes:
    """Return a small table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(table)
    return text.getvalue().encode(encoding)


def payables_sheets(table: Iterable[Sequence[Cell]], name: str = "AP Data") -> list[Sheet]:
    """Return the sheets of a typical finance workbook: the one to import is not the first."""
    notes = [["Accounts payable"], [], ["Import the sheet", name], ["Amounts in", "USD"]]
    return [Sheet("Notes", notes), Sheet(name, chain([rows.PAYABLES], table))]


def budget_sheet(table: Iterable[Sequence[Cell]]) -> Sheet:
    """Return a sheet with a title above its header, which is row 3."""
    return Sheet("Budget", chain([["Budget and forecast, all departments"], [], rows.BUDGETS], table))


BUDGET_HEADER_ROW = 3


def _csv(header: Sequence[str], made: Callable[[int, int, int], Iterator[list[str]]], seed: int, count: int) -> Write:
    def write(to: BinaryIO) -> Outcome:
        text = io.TextIOWrapper(to, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(header)
        writer.writerows(made(seed, 0, count))
        text.detach()  # flushes, and leaves the file open
        return Outcome(count)

    return write


def _payables(seed: int, count: int) -> Write:
    def write(to: BinaryIO) -> Outcome:
        write_workbook(to, payables_sheets(rows.payables(seed, 0, count)))
        return Outcome(count)

    return write


def _budgets(seed: int, count: int) -> Write:
    def write(to: BinaryIO) -> Outcome:
        write_workbook(to, [budget_sheet(rows.budgets(seed, 0, count))])
        return Outcome(count)

    return write

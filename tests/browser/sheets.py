"""Files that people upload: customers, as an office has them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TypedDict

import xlsxwriter

HEADER = ("E-mail", "Customer Name", "Country", "Credit Limit")
Row = Sequence[str]


class File(TypedDict):
    """A file as a browser's file chooser gives it."""

    name: str
    mimeType: str
    buffer: bytes


def good(count: int = 5, domain: str = "example.org") -> list[Row]:
    return [(f"customer{n}@{domain}", f"Customer {n}", "US", f"{n}00.50") for n in range(1, count + 1)]


def bad(count: int = 5, domain: str = "example.org") -> list[Row]:
    """Good rows, and three that are not: each for a reason of its own."""
    wrong = [
        ("nobody at home", "Eve", "US", "1.00"),
        (f"mallory@{domain}", "Mallory", "Germany", "2.00"),
        (f"trent@{domain}", "Trent", "DE", "much"),
    ]
    return [*good(count, domain), *wrong]


def csv(rows: Iterable[Row], name: str = "customers.csv") -> File:
    lines = [",".join(row) for row in (HEADER, *rows)]
    return {"name": name, "mimeType": "text/csv", "buffer": "\r\n".join(lines).encode()}


def xlsx(rows: Iterable[Row], name: str = "customers.xlsx", sheet: str = "Customers") -> File:
    data = io.BytesIO()
    with xlsxwriter.Workbook(data) as book:
        page = book.add_worksheet(sheet)
        for index, row in enumerate((HEADER, *rows)):
            page.write_row(index, 0, row)
    return {
        "name": name,
        "mimeType": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "buffer": data.getvalue(),
    }

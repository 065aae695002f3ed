"""Imports sample files with the application's importers, and has the expected contents of the tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
from office_rig import Office

from backoffice.samples.write import write_samples
from rowlock.imports.intake.intake import About, Intake
from rowlock.storage.imports import ImportRecord
from rowlock.testing import drain

MANIFEST = Path(__file__).parents[2] / "config" / "import-manifest.json"
COUNTS = ("totalRows", "inserted", "updated", "unchanged", "duplicates", "failed")

Row = tuple[Any, ...]


class Desk:
    """Imports files into an office, and reads its tables."""

    def __init__(self, office: Office, folder: Path) -> None:
        self.office = office
        self.folder = folder
        self.truth: dict[str, Any] = {}

    def samples(self, count: int, *types: str, seed: int = 1) -> None:
        self.truth = write_samples(self.folder, count, seed, types, True, lambda _: None)["files"]

    async def run(self, name: str, **about: Any) -> ImportRecord:
        """Import a file, of the type that the manifest says, and work until nothing is left."""
        import_id = await self.upload(name, **about)
        await drain(self.office.app)
        return await self.office.app.imports.get(import_id)

    async def run_all(self, *files: tuple[str, dict[str, Any]]) -> list[ImportRecord]:
        """Import several files at once, each with what is said about it."""
        ids = [await self.upload(name, **about) for name, about in files]
        await drain(self.office.app)
        return [await self.office.app.imports.get(import_id) for import_id in ids]

    async def upload(self, name: str, **about: Any) -> str:
        """Hand a file in; the next drain imports it."""
        added = await Intake(self.office.app).receive_file(self.folder / name, About(**about))
        return added.record.id

    async def told(self, name: str, **about: Any) -> tuple[int, ...]:
        """What the summary of an import says, in the order of COUNTS."""
        return counted(await self.run(name, **about))

    async def errors(self, import_id: str) -> set[tuple[int, str | None, str]]:
        page = await self.office.app.store.import_errors(import_id, after_row=0, limit=1_000)
        return {(error.row, error.column, error.code) for row in page.rows for error in row.errors}

    async def rows(self, table: str, *columns: str, company: str = "default") -> list[Row]:
        return sorted(await self.office.rows(table, *columns, company_id=company), key=repr)

    def csv(self, name: str) -> Iterator[dict[str, str]]:
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            yield from list(csv.DictReader(file))

    def sheet(self, name: str, sheet: str, header_row: int) -> Iterator[dict[str, Any]]:
        found = openpyxl.load_workbook(self.folder / name)[sheet].iter_rows(values_only=True, min_row=header_row)
        header = next(found)
        for row in found:
            yield dict(zip(header, row, strict=True))

    def write(self, name: str, *table: Sequence[str]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(table)
        (self.folder / name).write_text(text.getvalue(), encoding="utf-8", newline="")


def counted(record: ImportRecord) -> tuple[int, ...]:
    """What the summary of an import says, in the order of COUNTS; it must have succeeded."""
    assert record.status == "SUCCEEDED", (record.file_name, record.error)
    result = json.loads(record.result or "{}")
    return tuple(result[count] for count in COUNTS)


def ordered(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def cents(text: Any, places: int = 2) -> int | None:
    """An amount as a file has it; a sheet has the nearest number that a computer has."""
    if text in ("", None):
        return None
    return int(round(Decimal(str(text).replace(",", "")), places).scaleb(places))


def day(text: Any) -> str | None:
    if isinstance(text, datetime | date):
        return text.strftime("%Y-%m-%d")
    if text and "/" in text:
        return datetime.strptime(text, "%m/%d/%Y").strftime("%Y-%m-%d")
    return text or None

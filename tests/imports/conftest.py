"""Applications with importers on every store, and short ways to run a file through them."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import orjson
import pytest
from pydantic import BaseModel, Field, StringConstraints

from conformance.tables import BOOLEAN, DATE, DECIMAL, TEXT, Command, collection, or_null, rows, run
from engine.conftest import (
    MakeApp,
    clock,
    log,
    make_app,
    plain_environment,
    pytest_generate_tests,
    resource,
    rig,
    store,
    tmp_path,
)
from engine.running import soon
from engine.watched import WatchedStore
from rowlock import Rowlock
from rowlock.imports.intake.intake import About, Intake
from rowlock.storage.imports import ErrorRow, ImportRecord

__all__ = [
    "clock",
    "log",
    "make_app",
    "plain_environment",
    "pytest_generate_tests",
    "resource",
    "rig",
    "store",
    "tmp_path",
]

SECONDS = 60.0
_TABLES = ("customers", "odd")


class Customer(BaseModel):
    email: Annotated[str, StringConstraints(to_lower=True, pattern=r"^[^@\s]+@[^@\s]+$")] = Field(alias="E-mail")
    name: str = Field(min_length=1, max_length=50)
    credit: Decimal = Field(default=Decimal(0), ge=0, max_digits=12, decimal_places=2)
    since: date | None = None
    active: bool = True


# What a user's own table or collection of customers may look like.
COLUMNS = {
    "email": TEXT,
    "name": or_null(TEXT),
    "credit": or_null(DECIMAL),
    "since": or_null(DATE),
    "active": or_null(BOOLEAN),
}
CHECKED = (
    "CREATE TABLE customers (email VARCHAR(100) PRIMARY KEY, name VARCHAR(100) CHECK (name <> 'Evil'), "
    "credit NUMERIC, since DATE, active BOOLEAN)",
    *collection(
        "customers", {**COLUMNS, "name": {"bsonType": ["string", "null"], "not": {"enum": ["Evil"]}}}, key=["email"]
    ),
)


@dataclass
class Office:
    """An application, and files that go through it."""

    app: Rowlock
    folder: Path

    async def add(self, content: str | bytes | Path, name: str = "customers.csv", **about: Any) -> str:
        """Upload a file; the id of its import."""
        if isinstance(content, Path):
            path = content
        else:
            path = self.folder / name
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        added = await Intake(self.app).receive_file(path, About(**{"type": "customers"} | about))
        return added.record.id

    async def work(self) -> None:
        """Do all jobs there are."""
        if isinstance(self.app.store, WatchedStore):
            self.app.store.deaf = True
        await soon(self.app.work(drain=True), SECONDS)

    async def run(self, content: str | bytes | Path, name: str = "customers.csv", **about: Any) -> ImportRecord:
        """Upload a file and work until nothing is left; the import as it is then."""
        import_id = await self.add(content, name, **about)
        await self.work()
        for job in (await self.app.jobs(status="queued")).jobs:  # one that is tried again later: say why
            raise AssertionError(job.error)
        await self.app.imports.close()  # as the maintenance would
        return await self.app.imports.get(import_id)

    async def errors(self, import_id: str) -> list[ErrorRow]:
        return list((await self.app.store.import_errors(import_id, after_row=0, limit=10_000)).rows)

    async def table(
        self, *columns: str, of: str = "customers", default: tuple[str, ...] = ("email", "name", "credit")
    ) -> list[tuple[Any, ...]]:
        """What a table holds of these columns, by the first two of them."""
        found = await rows(self.app.store, of, *(columns or default))
        return [tuple(str(value) if isinstance(value, Decimal | UUID) else value for value in row) for row in found]

    async def column(self, column: str, of: str = "customers") -> list[Any]:
        """What a table holds of one column."""
        return [value for (value,) in await self.table(column, of=of)]

    async def execute(self, statement: str, *commands: Command) -> None:
        """The statement, or the commands where the store is MongoDB."""
        await run(self.app.store, statement, *commands)


def customers_csv(rows: Sequence[Sequence[Any]], header: Sequence[str] = ("E-mail", "Name", "Credit")) -> str:
    """A CSV file of these rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def told(record: ImportRecord) -> tuple[int, int, int, int, int, int]:
    """rows, inserted, updated, unchanged, duplicate, invalid"""
    c = record.counts
    return (c.rows, c.inserted, c.updated, c.unchanged, c.duplicate, c.invalid)


def error_of(record: ImportRecord) -> dict[str, Any]:
    """What a failed import says."""
    assert record.error is not None, record
    found: dict[str, Any] = orjson.loads(record.error)
    return found


MakeOffice = Callable[..., Awaitable[Office]]


@pytest.fixture
async def make_office(make_app: MakeApp, tmp_path: Path) -> AsyncIterator[MakeOffice]:
    """Makes offices; without importers where `declare` is given, which declares its own."""

    async def make(declare: Callable[[Rowlock], object] | None = None, **settings: Any) -> Office:
        files = {"import_store": str(tmp_path / "store"), "import_folder": str(tmp_path / "in")}
        manifest = {"import_manifest": str(tmp_path / "manifest.json")}
        app = await make_app(clock=None, **files | manifest | settings)
        if declare is None:
            app.importer("customers", row=Customer, key=["email"], into="customers")
        else:
            declare(app)
        office = Office(app, tmp_path)
        if not made:
            await _forget_tables(office)
        made.append(office)
        return office

    made: list[Office] = []
    yield make
    if made:
        await _forget_tables(made[0])


async def _forget_tables(office: Office) -> None:
    """The store may keep one database for the tests of all folders."""
    for table in _TABLES:
        async with office.app.store.transaction() as transaction:
            await transaction.drop_table(table)


@pytest.fixture
async def office(make_office: MakeOffice) -> Office:
    return await make_office()

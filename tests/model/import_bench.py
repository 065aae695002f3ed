"""Applications on one database that import random files, with the oracle beside them."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Coroutine
from datetime import date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from openpyxl import Workbook
from pydantic import BaseModel, Field, create_model

from conformance.stores import Rig
from engine.running import soon
from engine.watched import WatchedStore
from model.import_cases import Case, Spec
from model.import_documents import MongoOracle
from model.import_oracle import Oracle
from model.import_sql import ROLE, SETUP, PostgresOracle, SqliteOracle
from rowlock import FakeClock, Rowlock
from rowlock.imports.intake.intake import About, Intake
from rowlock.imports.read import planner
from rowlock.imports.read.sandbox import Sandbox
from rowlock.settings import load
from rowlock.storage.imports import ErrorRow, ImportRecord
from rowlock.storage.open import open_store

T = TypeVar("T")
_numbers = count(1)
CHUNK_BYTES = 1_024
FILLER = "z" * 40  # so that small files have several chunks


async def plan_here(_: Sandbox, order: Any, seconds: float, progress: Any) -> Any:
    """Read a file in this process: to start another for each takes thirty times as long, and has tests of its own."""
    return await asyncio.to_thread(planner.plan, order)


async def nothing(_: Sandbox) -> None:
    """Start no process that waits for a file."""


def deaf_store(*given: Any) -> WatchedStore:
    """A store without the connection for hints, which takes longer than an import."""
    store = WatchedStore(open_store(*given))
    store.deaf = True
    return store


class ImportBench:
    """A rig and its event loop; one application for each role."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        self._runner = asyncio.Runner()
        self.run(rig.make(FakeClock()))
        self._apps = {"owner": self._app(rig.url)}
        self._connection: psycopg.Connection[Any] | None = None
        if rig.name == "postgres":
            self._connection = psycopg.connect(rig.url, autocommit=True)
            self._connection.execute(SETUP)
            about = psycopg.conninfo.conninfo_to_dict(rig.url)
            self._apps["role"] = self._app(f"postgresql://{ROLE}@{about['host']}:{about['port']}/{about['dbname']}")

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def _app(self, url: str) -> Rowlock:
        places = {name: str(self.folder / name) for name in ("import_store", "import_folder", "import_manifest")}
        return Rowlock(
            settings=load(database_url=url, grace_seconds=5.0, connections=2, import_chunk_bytes=CHUNK_BYTES, **places)
        )

    def app(self, case: Case) -> Rowlock:
        return self._apps["owner" if case.rights == "owner" else "role"]

    def oracle(self, case: Case) -> Oracle:
        table = f"t{next(_numbers)}"
        if self.rig.name == "sqlite":
            return SqliteOracle(self.rig.url, case, table)
        if self.rig.name == "postgres":
            assert self._connection is not None
            return PostgresOracle(self._connection, case, table)
        return MongoOracle(self.rig.database, case, table)  # type: ignore[attr-defined]

    def declare(self, case: Case, table: str) -> None:
        self.app(case).importer(
            table,
            row=model_of(case),
            into=table,
            key=list(case.key),
            mode=case.mode,
            policy=case.policy,
            duplicates=case.duplicates,
        )

    def write(self, case: Case, table: str) -> Path:
        path = self.folder / f"{table}.{'xlsx' if case.workbook else 'csv'}"
        names = case.in_file
        if case.workbook:
            book = Workbook(write_only=True)
            sheet = book.create_sheet("Data")
            sheet.append([*names, "filler"])
            for row in case.file:
                sheet.append([*(row[name].typed for name in names), FILLER])
            book.save(path)
            return path
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow([*names, "filler"])
            lines.writerows([*(row[name].text for name in names), FILLER] for row in case.file)
        return path

    def load(self, case: Case, path: Path, **about: Any) -> tuple[ImportRecord, list[ErrorRow]]:
        """Import a file; return its result and its rows with errors."""
        return self.run(self._load(self.app(case), path, About(type=path.stem, force=True, **about)))

    async def _load(self, app: Rowlock, path: Path, about: About) -> tuple[ImportRecord, list[ErrorRow]]:
        added = await Intake(app).receive_file(path, about)
        await soon(app.work(drain=True))
        for job in (await app.jobs(status="queued")).jobs:
            raise AssertionError(f"tried again later: {job.error}")
        await app.imports.close()  # as the maintenance would
        record = await app.imports.get(added.record.id)
        page = await app.store.import_errors(record.id, after_row=0, limit=10_000)
        return record, list(page.rows)

    def close(self) -> None:
        for app in self._apps.values():
            self.run(app.close())
            app.blocking.close()
        if self._connection is not None:
            self._connection.close()
        self.run(self.rig.dispose())
        self._runner.close()


def model_of(case: Case) -> type[BaseModel]:
    """The row model of a case."""
    fields: dict[str, Any] = {spec.name: _field(spec) for spec in case.columns}
    return create_model("Row", **fields)


def _field(spec: Spec) -> tuple[Any, Any]:
    kind = _KINDS[spec.kind]
    limits: dict[str, Any] = {"max_digits": 12, "decimal_places": spec.places} if spec.places is not None else {}
    return (kind, Field(**limits)) if spec.required else (kind | None, Field(default=None, **limits))


_KINDS: dict[str, Any] = {
    "text": str,
    "integer": int,
    "decimal": Decimal,
    "float": float,
    "boolean": bool,
    "date": date,
    "datetime": datetime,
    "time": time,
    "uuid": UUID,
    "json": dict[str, Any],
}

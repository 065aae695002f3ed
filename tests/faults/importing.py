"""Files for imports under attack, their oracle, and a watcher that reads table and ledger in one statement."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from faults.databases import Database
from faults.processes import QUICK
from rowlock.imports.intake.intake import About, Intake
from rowlock.settings import load
from rowlock.storage.imports import ChunkRecord, ImportRecord

PAUSE_SECONDS = 0.02  # between two reads, to leave processor time to the workers


@dataclass
class File:
    """A generated file and the expected result of importing it."""

    path: Path
    rows: int
    valid: dict[str, tuple[str, int]]  # the last valid row of each key
    added: int  # valid rows, duplicates of a key included
    invalid: int


def generate(path: Path, rows: int, rng: random.Random, keys: int | None = None) -> File:
    """Generate a file with bad cells, broken records and duplicate keys, in varying notations."""
    valid: dict[str, tuple[str, int]] = {}
    added = invalid = 0
    keys = keys or max(1, rows * 4 // 5)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("email,name,points\n")
        for number in range(rows):
            key = f"user{rng.randrange(keys)}@x.org"
            kind = rng.random()
            if kind < 0.01:
                file.write(f"{key},,{number}\n")
            elif kind < 0.02:
                file.write(f"{key},N{number},-1\n")
            elif kind < 0.025:
                file.write(f"{key},N{number},1,too,many\n")
            elif kind < 0.03:
                file.write("nobody,N,1\n")
            else:
                written = key.upper() if kind < 0.2 else f" {key} " if kind < 0.3 else key
                name = f'"N, {number}"' if kind < 0.5 else f"N{number}"
                file.write(f"{written},{name},{number}\n")
                valid[key] = (name.strip('"'), number)
                added += 1
                continue
            invalid += 1
    return File(path, rows, valid, added, invalid)


class Importing:
    """Starts imports from the test, with the settings of its workers."""

    def __init__(self, database: Database, folder: Path, chunk_bytes: int) -> None:
        from faults.import_app import make_app

        self.database = database
        self.environment: Mapping[str, str] = {
            "ROWLOCK_IMPORT_STORE": str(folder / "store"),
            "ROWLOCK_IMPORT_CHUNK_BYTES": str(chunk_bytes),
            "QUEUE_MAX_ATTEMPTS": "1000",  # the attack kills far more often than real failures
            "ROWLOCK_DEATHS_MAX": "100",
        }
        with mock.patch.dict(os.environ, {**QUICK, **self.environment}):
            self.app = make_app(load(database_url=database.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.app.blocking.close()

    def add(self, file: File, type_name: str) -> str:
        async def add() -> str:
            return (await Intake(self.app).receive_file(file.path, About(type=type_name, force=True))).record.id

        return self.app.blocking.run(add())

    def get(self, import_id: str) -> ImportRecord:
        return self.app.blocking.run(self.app.imports.get(import_id))

    def chunks(self, import_id: str) -> list[ChunkRecord]:
        async def chunks() -> list[ChunkRecord]:
            return await self.app.store.chunks(import_id)

        return self.app.blocking.run(chunks())

    def cancel(self, import_id: str) -> None:
        self.app.blocking.run(self.app.imports.cancel(import_id))

    def resume(self, import_id: str) -> None:
        self.app.blocking.run(self.app.imports.resume(import_id))


class Watcher(threading.Thread):
    """Repeatedly compares the table of inserted rows with the ledger, in one statement."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._over = threading.Event()
        self.looks = 0
        self.differences: list[Any] = []
        self.steps: list[int] = []

    def run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            try:
                table, rows, inserted, *others = self._database.ledger("log")
            except Exception as error:  # the first plan creates the table
                if "log" not in str(error):
                    self.differences.append(error)
                continue
            self.looks += 1
            if table != inserted or rows != inserted + sum(others):
                self.differences.append((table, rows, inserted, *others))
            if self.steps and int(rows) < self.steps[-1]:
                self.differences.append(f"backwards: {self.steps[-1]} to {rows}")
            self.steps.append(int(rows))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(10)

    def __enter__(self) -> Self:
        self.start()
        return self

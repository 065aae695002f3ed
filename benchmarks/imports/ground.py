"""What the import measurements share: files, their tables, and the checks of the results."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.clients import ClientError
from benchmarks.imports import data, model
from benchmarks.imports.data import File, Truth
from benchmarks.imports.drive import Driver, driving
from benchmarks.imports.worker_tree import APP, workers
from benchmarks.install import import_python
from benchmarks.places import PostgresPlace, SqlitePlace
from benchmarks.plan import Plan
from benchmarks.server import Server

Figures = dict[str, Any]
_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_WARM_ROWS = 100


@dataclass(frozen=True, slots=True)
class Ground:
    plan: Plan
    server: Server
    cache: Path
    directory: Path  # on disk, for stores and uploads

    def file(self, name: str, rows: int, seed: int = data.SEED) -> File:
        return data.make(data.shelf(self.cache), name, rows, seed)

    @property
    def large(self) -> File:
        return self.file("large", self.plan.import_rows)

    @property
    def small(self) -> File:
        return self.file("small", self.plan.import_small_rows)

    # -- peers -------------------------------------------------------------------------------------

    def peer(self, name: str, file: File, path: Path, url: str, server: int | None) -> Figures:
        """Run a peer in its own process; return its figures per row."""
        scratch = self.directory / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        environment = os.environ | {
            "BENCH_DATABASE": url,
            "BENCH_FILE": str(path),
            "BENCH_CLEAN": str(file.clean),
            "BENCH_SERVER": "" if server is None else str(server),
            "BENCH_SCRATCH": str(scratch),
            "PYTHONPATH": str(_REPOSITORY),
        }
        command = [import_python(self.cache), "-m", "benchmarks.imports.peers", name]
        done = subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=self.plan.import_seconds_max
        )
        if done.returncode:
            raise ClientError(f"{name}: {done.stderr.strip()[-1500:]}")
        told: Figures = json.loads(done.stdout.splitlines()[-1])
        _check_bad(told.get("bad"), file.truth)
        rows = file.truth.loaded if told["bad"] is None and "loaded" not in told else file.truth.rows
        return {
            "rate": rows / told["seconds"],
            "seconds": told["seconds"],
            "client_cpu_us": told["client_ns"] / rows / 1_000,
            "server_cpu_us": told["server_ns"] / rows / 1_000,
            "other_cores": max(0.0, told["others_ns"] / told["seconds"] / 1e9),
            "peak_mb": told["peak_mb"],
            "rows": rows,
        } | ({"loaded": told["loaded"]} if "loaded" in told else {})

    # -- tables ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[PostgresPlace]:
        """Create a database with the empty table; remove it afterwards."""
        where = PostgresPlace(self.server, f"imports_{name}")
        where.reset()
        try:
            with self.server.connect(where.name) as connection:
                connection.execute(model.CREATE)
            yield where
        finally:
            where.remove()

    def fill(self, where: PostgresPlace, others: bool) -> None:
        """Prepare the table: empty, or with rows of other keys; ends with a checkpoint, so that the import has none."""
        with self.server.connect(where.name) as connection:
            connection.execute(f"TRUNCATE {model.TABLE}")
            if others:
                connection.execute(model.FILL_WITH_OTHERS)
            connection.execute(f"VACUUM ANALYZE {model.TABLE}")
        where.settle()

    def check(self, where: PostgresPlace, truth: Truth, others: bool = False) -> None:
        """Raise unless the table has exactly the good rows of the file and, if given, those with other keys."""
        with self.server.connect(where.name) as connection:
            found: Any = connection.execute(model.CONTENT).fetchone()
            total: Any = connection.execute(f"SELECT count(*) FROM {model.TABLE}").fetchone()
        _check_content((int(found[0]), int(found[1])), truth)
        if total[0] - found[0] != (model.OTHERS if others else 0):
            raise ClientError(f"the table has {total[0] - found[0]} other rows")

    # -- Rowlock -----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def rowlock(
        self,
        where: PostgresPlace | SqlitePlace,
        processes: int,
        app: str = APP,
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Driver]:
        """Start workers with default settings on this store; they are warm and idle."""
        url = where.url if isinstance(where, PostgresPlace) else f"sqlite:///{where.url}"
        store = self.directory / "uploads"
        environment = {"DATABASE_URL": url, "ROWLOCK_IMPORT_STORE": str(store), **(environment or {})}
        seconds = self.plan.import_seconds_max
        with contextlib.ExitStack() as stack:
            async with driving(url, store, where.server_pid, seconds) as driver:
                await driver.app.migrate()
                driver.running = stack.enter_context(workers(app, environment, self.directory, processes))
                await driver.get_warm(self.file("warm", _WARM_ROWS * processes))
                yield driver


def check_sqlite(path: str, truth: Truth) -> None:
    """Raise unless the table has exactly the good rows of the file."""
    since, balance, active = (model.COLUMNS.index(column) for column in ("since", "balance", "active"))
    count = total = 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for row in connection.execute(f"SELECT {', '.join(model.COLUMNS)} FROM {model.TABLE}"):
            cells = ["" if value is None else str(value) for value in row]
            cells[since] = cells[since][:10]
            cells[balance] = f"{Decimal(cells[balance]):.2f}"
            cells[active] = "true" if row[active] in (1, "1", "true") else "false"
            count += 1
            total += data.content(cells)
    _check_content((count, total), truth)


def _check_bad(found: list[list[Any]] | None, truth: Truth) -> None:
    if found is not None and {(row, column) for row, column in found} != set(truth.bad):
        raise ClientError(f"the {len(found)} bad cells that were found are not the {truth.bad_cells} of the file")


def _check_content(found: tuple[int, int], truth: Truth) -> None:
    if found != (truth.loaded, truth.content):
        raise ClientError(f"the table has {found[0]} rows of {truth.loaded}, or other values than the file")

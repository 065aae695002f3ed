"""The measurements, in groups that share a database or workers. Each group yields the figures of its cases in order."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients import ClientError
from benchmarks.imports.app import REPLACE, UPSERT
from benchmarks.imports.data import SEED, File, make_workbook
from benchmarks.imports.drive import REST_SECONDS, Driver
from benchmarks.imports.ground import Figures, Ground, check_sqlite
from benchmarks.places import PostgresPlace, SqlitePlace

Measured = tuple[str, Figures]
_LATENCY_ROWS = 100


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    cases: tuple[str, ...]
    run: Callable[[Ground], Iterator[Measured]]
    once: bool = False


def _peer(name: str, pick: Callable[[Ground], File], others: bool = False, path: str = "csv") -> Group:
    """Return the group of a peer that fills the same table as Rowlock."""

    def run(ground: Ground) -> Iterator[Measured]:
        file = pick(ground)
        source = make_workbook(file) if path == "xlsx" else file.path
        with ground.database("peer") as where:
            ground.fill(where, others)
            figures = ground.peer(name, file, source, where.url, ground.server.pid)
            ground.check(where, file.truth, others)
        yield name, figures

    return Group(f"import-{name}", (name,), run)


def _dlt(ground: Ground) -> Iterator[Measured]:
    """Measure a peer that creates its own table and columns, and keeps any one of the rows with equal keys."""
    file = ground.small
    with ground.database("peer") as where:
        where.settle()
        figures = ground.peer("dlt", file, file.path, where.url, ground.server.pid)
    if figures["loaded"] != file.truth.loaded:
        raise ClientError(f"dlt has loaded {figures['loaded']} rows of {file.truth.loaded}")
    yield "dlt", figures


def _sqlite_utils(ground: Ground) -> Iterator[Measured]:
    where = SqlitePlace(ground.directory / "sqlite-utils")
    where.reset()
    file = ground.large
    figures = ground.peer("sqlite-utils", file, file.path, where.url, None)
    check_sqlite(where.url, file.truth)
    where.remove()
    yield "sqlite-utils", figures


# -- Rowlock ---------------------------------------------------------------------------------------


def _rowlock(processes: int) -> Group:
    end = "" if processes == 1 else f"-{processes}"
    cases = [f"rowlock-{name}{end}" for name in ("empty", "first", "again", "replace")]

    async def measured(ground: Ground, where: PostgresPlace, driver: Driver) -> AsyncIterator[Measured]:
        rig, file = Rig(ground, where, driver), ground.large
        empty, first, again, replace = cases
        yield empty, await rig.measure(file, UPSERT, others=False)
        yield first, await rig.measure(file, UPSERT)
        yield again, await rig.measure(file, UPSERT, again=True)
        yield replace, await rig.measure(file, REPLACE)

    return Group(f"import-rowlock{end}", tuple(cases), _on_postgresql(processes, measured))


async def _workbook(ground: Ground, where: PostgresPlace, driver: Driver) -> AsyncIterator[Measured]:
    file = ground.small
    yield "rowlock-xlsx", await Rig(ground, where, driver).measure(file, UPSERT, path=make_workbook(file))


async def _latency(ground: Ground, where: PostgresPlace, driver: Driver) -> AsyncIterator[Measured]:
    """Import small files one at a time into an idle worker, then half as many one right after the other."""
    took = []
    files = [ground.file("tiny", _LATENCY_ROWS, SEED + number) for number in range(ground.plan.import_latency_files)]
    for file in files:
        took.append(await driver.quick(file) * 1_000)
        await asyncio.sleep(REST_SECONDS)
    next_to = [ground.file("tiny", _LATENCY_ROWS, SEED - number) for number in range(1, len(files) // 2 + 1)]
    in_a_row = [await driver.quick(file) * 1_000 for file in next_to]
    yield (
        "rowlock-latency",
        {
            "p50_ms": statistics.median(took),
            "max_ms": max(took),
            "files": len(took),
            "in_a_row_p50_ms": statistics.median(in_a_row[1:]),
            "in_a_row_max_ms": max(in_a_row),
        },
    )


async def _huge(ground: Ground, where: PostgresPlace, driver: Driver) -> AsyncIterator[Measured]:
    """Import enough rows to show in peak memory whatever grows with the file."""
    file = ground.file("huge", ground.plan.import_huge_rows)
    try:
        yield "rowlock-huge", await Rig(ground, where, driver).measure(file, UPSERT)
    finally:
        for path in file.path.parent.glob("huge-*"):
            path.unlink()


def _sqlite(ground: Ground) -> Iterator[Measured]:
    async def measured() -> Figures:
        async with ground.rowlock(where, 1) as driver:
            return await _import(driver, file.path, UPSERT, file)

    file = ground.large
    where = SqlitePlace(ground.directory / "rowlock-sqlite")
    where.reset()
    figures = asyncio.run(measured())
    check_sqlite(where.url, file.truth)
    where.remove()
    yield "rowlock-sqlite", figures


@dataclass(frozen=True, slots=True)
class Rig:
    """Workers, and the table that they fill."""

    ground: Ground
    where: PostgresPlace
    driver: Driver

    async def measure(
        self, file: File, type_name: str, *, others: bool = True, again: bool = False, path: Path | None = None
    ) -> Figures:
        """Import a file into a table with rows of other keys or none; with `again`, one that has its rows already."""
        if again:
            self.where.settle(vacuum=True)
        else:
            self.ground.fill(self.where, others)
        figures = await _import(self.driver, path or file.path, type_name, file, again)
        self.ground.check(self.where, file.truth, others and type_name != REPLACE)
        return figures


async def _import(driver: Driver, path: Path, type_name: str, file: File, again: bool = False) -> Figures:
    driver.running.forget()
    figures = await driver.run(path, type_name, file.truth, unchanged=again)
    del figures["ended"]
    figures |= driver.running.peak_by_role()
    await asyncio.sleep(REST_SECONDS)  # its files are deleted, and the reader for the next file is ready
    return figures


def _on_postgresql(
    processes: int, measured: Callable[[Ground, PostgresPlace, Driver], AsyncIterator[Measured]]
) -> Callable[[Ground], Iterator[Measured]]:
    """Return a group whose workers have a database of their own; it yields its figures as they arrive."""

    def run(ground: Ground) -> Iterator[Measured]:
        async def each() -> AsyncGenerator[Measured, None]:
            async with ground.rowlock(where, processes) as driver:
                async for case in measured(ground, where, driver):
                    yield case

        with ground.database("rowlock") as where, asyncio.Runner() as runner:
            cases = each()
            try:
                while (case := runner.run(anext(cases, None))) is not None:
                    yield case
            finally:
                runner.run(cases.aclose())

    return run


def _large(ground: Ground) -> File:
    return ground.large


def _small(ground: Ground) -> File:
    return ground.small


GROUPS: tuple[Group, ...] = (
    _peer("copy", _large),
    _peer("staging", _large, others=True),
    _rowlock(1),
    _rowlock(2),
    _peer("seed-000", _large),
    _peer("pandas", _small),
    Group("import-dlt", ("dlt",), _dlt),
    _peer("openpyxl", _small, path="xlsx"),
    Group("import-xlsx", ("rowlock-xlsx",), _on_postgresql(1, _workbook)),
    Group("import-sqlite-utils", ("sqlite-utils",), _sqlite_utils),
    Group("import-sqlite", ("rowlock-sqlite",), _sqlite),
    Group("import-latency", ("rowlock-latency",), _on_postgresql(1, _latency), once=True),
    Group("import-huge", ("rowlock-huge",), _on_postgresql(1, _huge), once=True),
)

"""Where the time of one import goes: `python -m benchmarks.imports.profile --rows 200000 [--empty] [--again] [--xlsx]`.

The timers of `steps` are in the workers; the reader of the file, which is a process of its own, is run again in this
process. Steps that wait overlap others, and steps contain steps: the sums are not shares of the total.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import usage
from benchmarks.imports import steps
from benchmarks.imports.app import REPLACE, UPSERT
from benchmarks.imports.data import File, make_workbook
from benchmarks.imports.drive import REST_SECONDS, Driver
from benchmarks.imports.ground import Ground
from benchmarks.install import cache_directory
from benchmarks.places import PostgresPlace, SqlitePlace
from benchmarks.plan import QUICK
from benchmarks.server import running, wheel_binaries

_STAGES = ("plan_import", "_read", "_record", "load_chunk", "finish_import")
Step = tuple[int, int, str, float, float, float]


def main() -> None:
    given = _options()
    usage.require()
    plan = replace(QUICK, import_rows=given.rows, import_small_rows=given.rows)
    with tempfile.TemporaryDirectory(prefix="rowlock-profile-", dir=given.data) as name:
        directory = Path(name)
        directory.chmod(0o755)
        with running(given.postgres_bin or wheel_binaries(), directory) as server:
            asyncio.run(_profile(Ground(plan, server, cache_directory(), directory), given))


async def _profile(ground: Ground, given: argparse.Namespace) -> None:
    file = ground.large
    path = make_workbook(file) if given.xlsx else file.path
    taken = ground.directory / "steps"
    more = {"BENCH_STEPS": str(taken)}
    with ground.database("profile") as postgres:
        where: PostgresPlace | SqlitePlace = postgres
        if given.sqlite:
            where = SqlitePlace(ground.directory / "sqlite")
            where.reset()
        async with ground.rowlock(where, given.processes, "benchmarks.imports.steps:app", more) as driver:
            if isinstance(where, PostgresPlace):
                ground.fill(where, others=not given.empty)
            await _once(driver, file, path, given, taken, again=False)
            if given.again:
                await asyncio.sleep(REST_SECONDS)
                where.settle(vacuum=True)
                await _once(driver, file, path, given, taken, again=True)
    _read_once_more(path, ground.directory, file)


async def _once(driver: Driver, file: File, path: Path, given: argparse.Namespace, taken: Path, again: bool) -> None:
    driver.running.forget()
    taken.write_bytes(b"")
    type_name = REPLACE if given.replace else UPSERT
    figures = await driver.run(path, type_name, file.truth, unchanged=again and not given.replace)
    figures |= driver.running.peak_by_role()
    began = time.monotonic()
    await asyncio.sleep(1)  # files are removed after the end
    print(f"\n{'again' if again else 'first'}: " + " ".join(_words(figures)))
    told = [json.loads(line) for line in taken.read_text().splitlines()]
    _course([step for step in told if step[3] < began], figures["ended"], figures["seconds"])
    _table(told, file.truth.rows)


def _words(figures: dict[str, Any]) -> Iterable[str]:
    for key, value in figures.items():
        if isinstance(value, (int, float)) and key != "ended":
            yield f"{key}={value:,.0f}" if abs(value) >= 100 else f"{key}={value:.3g}"


def _course(told: list[Step], ended: float, seconds: float) -> None:
    """Print the start and end of each step, in seconds since the upload."""
    zero = ended - seconds
    for title in _STAGES:
        spans = [(step[3] - zero, step[4] - zero) for step in told if step[2].endswith(f": {title}")]
        if spans:
            first, last = min(spans)[0], max(end for _, end in spans)
            print(f"  {first:7.3f} s to {last:7.3f} s  {title} ({len(spans)})")
    print(f"  {seconds:7.3f} s            SUCCEEDED was seen")


def _table(told: list[Step], rows: int) -> None:
    by_step: dict[str, list[Step]] = defaultdict(list)
    for step in told:
        by_step[step[2]].append(step)
    print(f"  {'step':44} {'calls':>6} {'wall s':>8} {'longest':>8} {'CPU s':>7} {'wall µs/row':>12}")
    for title, taken in sorted(by_step.items(), key=lambda each: -sum(step[4] - step[3] for step in each[1])):
        walls = [step[4] - step[3] for step in taken]
        used = sum(step[5] for step in taken)
        print(
            f"  {title:44} {len(taken):6} {sum(walls):8.3f} {max(walls):8.3f} {used:7.3f}"
            f" {sum(walls) / rows * 1e6:12.2f}"
        )


def _read_once_more(path: Path, directory: Path, file: File) -> None:
    """Run the reader's steps in this process, alone on the machine; its libraries' threads are not limited."""
    from rowlock.imports.fields import dump
    from rowlock.imports.read import planner
    from rowlock.imports.read.plan_request import Order
    from rowlock.settings import load

    told: list[Step] = []
    for absent in steps.time_steps(steps.IN_PLANNER, lambda *taken: told.append((0, 0, *taken))):
        print(f"not timed, it is not there: {absent}")
    settings, declared = load(), steps.app.importers[UPSERT]
    folder = directory / "chunks"
    folder.mkdir()
    order = Order(
        path=str(path),
        name=path.name,
        kind=path.suffix[1:],
        sheet=None,
        fields=dump(declared.fields),
        partition=[field.name for field in declared.partition],
        folder=str(folder),
        chunk_bytes=settings.import_chunk_bytes,
        chunks_max=settings.import_chunks_max,
        errors_max=settings.import_errors_max,
        columns_max=settings.import_columns_max,
        cell_chars_max=settings.import_cell_chars_max,
        unpacked_bytes_max=settings.import_unpacked_bytes_max,
        memory_mb=settings.import_plan_memory_mb,
        cpu_seconds=int(settings.import_plan_seconds) + 1,
    )
    planner._say = lambda _: None  # type: ignore[assignment]
    began, used = time.monotonic(), time.process_time()
    found = planner.plan(order)
    seconds, used = time.monotonic() - began, time.process_time() - used
    size = sum(each.stat().st_size for each in folder.iterdir())
    print(
        f"\nreading alone: {seconds:.3f} s, CPU {used:.3f} s, {len(found.chunks)} chunks of {size / 1e6:,.0f} MB in all"
    )
    _table(told, file.truth.rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports.profile", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--sqlite", action="store_true", help="into SQLite")
    parser.add_argument("--xlsx", action="store_true", help="from a workbook")
    parser.add_argument("--empty", action="store_true", help="into an empty table, not one with rows of other keys")
    parser.add_argument("--replace", action="store_true", help="in place of what is there")
    parser.add_argument("--again", action="store_true", help="the same file twice")
    parser.add_argument("--postgres-bin", type=Path, help="directory with initdb and postgres")
    parser.add_argument("--data", type=Path, default=Path("/var/tmp"), help="directory on disk for the stores")
    return parser.parse_args()


if __name__ == "__main__":
    main()

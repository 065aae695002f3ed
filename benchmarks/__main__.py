"""Install the peers, start PostgreSQL, measure everything in turns, write table and JSON."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from pymongo.errors import PyMongoError

from benchmarks import mongod, report, usage
from benchmarks.clients import Bench, ClientError
from benchmarks.imports import measure as imports
from benchmarks.imports.bars import PART
from benchmarks.imports.ground import Ground
from benchmarks.imports.groups import Group
from benchmarks.install import InstallError, cache_directory, import_versions, install, install_for_imports
from benchmarks.machine import describe, filesystem
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.server import Server, ServerError, running, wheel_binaries
from benchmarks.sync import measure as sync
from benchmarks.systems import SYSTEMS, Store, System
from benchmarks.workloads import WORKLOADS, Context, Workload

Runs = dict[str, dict[str, list[dict[str, Any]]]]  # system -> workload -> one entry per repetition


def main() -> int:
    options = _options()
    systems, workloads, groups = _chosen(options.only)
    synced = sync.chosen(options.only)
    usage.require()
    plan: Plan = QUICK if options.quick else FULL
    if options.rows:
        plan = replace(plan, import_rows=options.rows, import_small_rows=options.rows, import_huge_rows=0)
    if options.repeat:
        plan = replace(plan, repeat=options.repeat)
    cache = cache_directory()
    try:
        systems = install(systems, cache)
        if groups:
            install_for_imports(cache)
        with _directories(options.data) as (data, memory):
            bench = Bench(cache, data, memory)
            with (
                _server(systems, bool(groups or synced), options.postgres_bin, data) as server,
                _mongod(systems, data) as members,
            ):
                about = describe(systems, cache, server, plan, data)
                if members is not None:
                    about["mongodb"] = members.version()
                partial = bool(options.only or options.rows or options.repeat)
                kept = Kept({system.name: {} for system in systems}, systems, about, partial)
                _measure(Context(bench, plan, server, members), systems, workloads, kept)
                if groups:
                    about["import_versions"] = import_versions(cache)
                    kept.add(PART, imports.measure(Ground(plan, server, cache, data), groups))
                if synced:
                    kept.add(sync.PART, sync.measure(plan, server, data, synced))
    except (InstallError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{kept.write().read_text()}")
    return 0


@dataclass(slots=True)
class Kept:
    """The measurements so far, written after every turn and part, so that an interrupted run keeps its results."""

    runs: Runs
    systems: list[System]
    about: dict[str, Any]
    partial: bool
    began: float = field(default_factory=time.monotonic)

    def add(self, part: str, measured: dict[str, list[dict[str, Any]]]) -> None:
        self.runs[part] = measured
        self.write()

    def write(self) -> Path:
        self.about["minutes"] = round((time.monotonic() - self.began) / 60, 1)
        return report.write(self.runs, self.systems, self.about, self.partial)


def _measure(context: Context, systems: list[System], workloads: list[Workload], kept: Kept) -> None:
    """Repeat all measurements in turns, so that compared systems run under the same conditions of the machine."""
    runs = kept.runs
    broken: set[tuple[str, str]] = set()
    for turn in range(context.plan.repeat):
        for workload, system in itertools.product(workloads, systems):
            once_more = turn == 0 or not (workload.once or (system.name, workload.name) in broken)
            if workload.applies(system) and once_more:
                entry = _measure_once(context, system, workload)
                runs[system.name].setdefault(workload.name, []).append(entry)
                if "error" in entry:
                    broken.add((system.name, workload.name))
        kept.write()


def _measure_once(context: Context, system: System, workload: Workload) -> dict[str, Any]:
    try:
        entry = workload.run(context, system)
    except (ClientError, OSError, psycopg.Error, PyMongoError, subprocess.TimeoutExpired) as error:
        entry = {"error": report.without_paths(str(error))}
    print(f"{time.strftime('%H:%M:%S')} {system.name:16} {workload.name:14} {report.line(entry)}", flush=True)
    return entry


def _chosen(only: list[str]) -> tuple[list[System], list[Workload], list[Group]]:
    """Return the named systems, workloads and import groups; all of a kind if none of it is named."""
    named = set(only) - set(imports.NAMES) - set(sync.NAMES)
    known = {system.name for system in SYSTEMS} | {workload.name for workload in WORKLOADS}
    if unknown := sorted(named - known):
        known |= set(imports.NAMES) | set(sync.NAMES)
        raise SystemExit(f"unknown names: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    systems = [system for system in SYSTEMS if system.name in named] or list(SYSTEMS)
    workloads = [workload for workload in WORKLOADS if workload.name in named] or list(WORKLOADS)
    systems = [system for system in systems if any(workload.applies(system) for workload in workloads)]
    return (systems if named or not only else []), workloads, imports.chosen(only)


@contextlib.contextmanager
def _directories(parent: Path) -> Any:
    if filesystem(parent) in ("tmpfs", "ramfs"):
        raise ServerError(f"{parent} is in memory, where fsync costs nothing: give --data a directory on disk")
    data = Path(tempfile.mkdtemp(prefix="rowlock-bench-", dir=parent))
    data.chmod(0o755)
    shared_memory = Path("/dev/shm")
    memory = Path(tempfile.mkdtemp(prefix="rowlock-bench-", dir=shared_memory if shared_memory.is_dir() else None))
    try:
        yield data, memory
    finally:
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)


@contextlib.contextmanager
def _server(systems: list[System], needed: bool, binaries: Path | None, data: Path) -> Any:
    if not needed and not any(system.store is Store.POSTGRESQL for system in systems):
        yield None
        return
    server: Server
    with running(binaries or wheel_binaries(), data) as server:
        yield server


def _mongod(systems: list[System], data: Path) -> Any:
    if any(system.store is Store.MONGODB for system in systems):
        return mongod.running(data)
    return contextlib.nullcontext()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once instead of three times, smaller sizes")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these systems, workloads or parts")
    parser.add_argument("--rows", type=int, help="rows of the imported files, for a short run")
    parser.add_argument("--repeat", type=int, help="number of turns, whose median is reported: more on a noisy machine")
    parser.add_argument("--postgres-bin", type=Path, help="directory with initdb and postgres (default: the wheel's)")
    parser.add_argument("--data", type=Path, default=Path("/var/tmp"), help="directory on disk for the stores")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())

"""The measured application with a timer around each step of an import; its workers append the times to a file.

Each timed function is named by the module and attribute through which it is called. A name that no longer exists is
reported.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.imports.app import app as app

_IMPORTS, _PG, _SQLITE = "rowlock.imports", "rowlock.storage.postgres", "rowlock.storage.sqlite"

IN_WORKERS = (
    f"{_IMPORTS}.parent:plan_import",
    f"{_IMPORTS}.chunk:load_chunk",
    f"{_IMPORTS}.finish:finish_import",
    f"{_IMPORTS}.parent:_read",
    f"{_IMPORTS}.sandbox:Sandbox.plan",
    f"{_IMPORTS}.parent:_record",
    f"{_IMPORTS}.chunk:ChunkWork.rows",
    "rowlock.storage.blobs:Blobs.put_file",
    "rowlock.storage.blobs:Blobs.get",
    f"{_IMPORTS}.split:read_chunk",
    f"{_IMPORTS}.ledger:Ledger.begin",
    f"{_IMPORTS}.ledger:Ledger.check",
    f"{_IMPORTS}.ledger:Ledger.kept",
    f"{_IMPORTS}.ledger:Ledger.table_rows",
    f"{_IMPORTS}.ledger:Ledger.result",
    f"{_IMPORTS}.chunk:ChunkWork.load",
    f"{_PG}.load:in_key_order",
    f"{_PG}.load:Loading._straight",
    f"{_PG}.stage:Stage.fill",
    f"{_PG}.stage:encode",
    f"{_PG}.put:Put._drop_unchanged",
    f"{_PG}.put:Put._insert",
    f"{_PG}.put:Put._update",
    f"{_PG}.importing:*.end_chunk",
    f"{_SQLITE}.load:_load",
    f"{_SQLITE}.importing:*.end_chunk",
    "rowlock.jobs.transaction:JobTransaction.__aenter__",
    "rowlock.jobs.transaction:JobTransaction.__aexit__",
    f"{_IMPORTS}.finish:clean",
)
IN_PLANNER = (
    f"{_IMPORTS}.planner:open_delimited",
    f"{_IMPORTS}.planner:open_workbook",
    f"{_IMPORTS}.read.delimited:DelimitedFile.head",
    f"{_IMPORTS}.read.blocks:Blocks.next",
    f"{_IMPORTS}.read.table:*.read",
    f"{_IMPORTS}.planner:key_cells",
    f"{_IMPORTS}.planner:key_hash",
    f"{_IMPORTS}.split:Splitter.add_by_hash",
    f"{_IMPORTS}.split:_File.write",
    f"{_IMPORTS}.split:Splitter.chunks",
)

Note = Callable[[str, float, float, float], None]
"""Step, start, end, and the CPU time of its thread in between."""


def time_steps(names: tuple[str, ...], note: Note) -> list[str]:
    """Put a timer around each function; return the names that do not exist."""
    missing = []
    for name in names:
        where, _, path = name.partition(":")
        try:
            holder: Any = importlib.import_module(where)
        except ImportError:
            missing.append(name)
            continue
        *owners, last = path.split(".")
        for owner in owners:
            classes = [each for each in vars(holder).values() if inspect.isclass(each) and each.__module__ == where]
            named = getattr(holder, owner, None) if owner != "*" else None
            holder = named or next((each for each in classes if last in vars(each)), None)
        if holder is None or not hasattr(holder, last):
            missing.append(name)
            continue
        title = f"{where.rpartition('.')[2]}: {'.'.join(owner for owner in (*owners, last) if owner != '*')}"
        setattr(holder, last, _timed(getattr(holder, last), title, note))
    return missing


def _timed(function: Callable[..., Any], title: str, note: Note) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*given: Any, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return await function(*given, **named)
            finally:
                note(title, began, time.monotonic(), 0.0)  # others run in this thread while it waits

        return later

    @functools.wraps(function)
    def now(*given: Any, **named: Any) -> Any:
        began, used = time.monotonic(), time.thread_time()
        try:
            return function(*given, **named)
        finally:
            note(title, began, time.monotonic(), time.thread_time() - used)

    return now


def _to_file(path: str) -> Note:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(title: str, began: float, ended: float, used: float) -> None:
        told = [os.getpid(), threading.get_native_id(), title, began, ended, used]
        os.write(file, json.dumps(told).encode() + b"\n")

    return note


if os.environ.get("BENCH_STEPS"):
    for absent in time_steps(IN_WORKERS, _to_file(os.environ["BENCH_STEPS"])):
        print(f"not timed, it is not there: {absent}", file=sys.stderr, flush=True)

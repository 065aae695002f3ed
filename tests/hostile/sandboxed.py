"""Reading files in the real sandbox, with the resources of its child measured from outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from hostile.bad_files import BadFile
from imports.conftest import Customer
from rowlock.errors import FileRefused
from rowlock.imports.fields import dump, fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.read import sandbox as sandbox_module
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.read.sandbox import Sandbox
from rowlock.imports.read.sandbox_process import Child

MEMORY_MB = 512
SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # other processes may have the processor meanwhile

_FIELDS = dump(fields_of(Customer, Formats()))
_TICKS = os.sysconf("SC_CLK_TCK")


def order_of(path: Path, folder: Path, **others: Any) -> Order:
    """As the parent job orders it, with the limits that are the default."""
    given: dict[str, Any] = {
        "path": str(path),
        "name": path.name,
        "kind": "xlsx" if path.suffix == ".xlsx" else "csv",
        "sheet": None,
        "fields": _FIELDS,
        "partition": ["email"],
        "folder": str(folder),
        "chunk_bytes": 12 << 20,
        "chunks_max": 1_000,
        "errors_max": 10_000,
        "columns_max": 1_000,
        "cell_chars_max": 1 << 20,
        "unpacked_bytes_max": 8 << 30,
        "memory_mb": MEMORY_MB,
        "cpu_seconds": 100,
    }
    return Order(**given | others)


@dataclass
class Use:
    """The most that a child was seen to take.

    Memory counts from the next look on: what a child takes between two looks depends on when the machine lets the
    sandbox look, and the sandbox ends the child then.
    """

    memory_mb: float = 0.0
    cpu_seconds: float = 0.0
    pids: set[int] = field(default_factory=set)
    _seen_mb: float = 0.0
    _ended: set[int] = field(default_factory=set)
    _watcher: asyncio.Task[Any] | None = None

    def look(self, child: Child) -> None:
        self.memory_mb = max(self.memory_mb, self._seen_mb)
        self._watcher = asyncio.current_task()
        self._read(child)

    def end(self, child: Child) -> None:
        """The sandbox ends the child: after a look, or because it is done. It may do so twice; the first counts."""
        if child.pid not in self._ended and asyncio.current_task() is not self._watcher:
            self._read(child)
            self.memory_mb = max(self.memory_mb, self._seen_mb)
        self._ended.add(child.pid)

    def _read(self, child: Child) -> None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
            times = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        self.pids.add(child.pid)
        for line in status.splitlines():
            if line.startswith("VmHWM"):
                self._seen_mb = int(line.split()[1]) / 1_024
        self.cpu_seconds = max(self.cpu_seconds, (int(times[11]) + int(times[12])) / _TICKS)


@contextmanager
def measured() -> Iterator[Use]:
    """What the children in this block take, looked at whenever the sandbox looks, and before they are ended."""
    use = Use()
    resident_bytes, kill = Child.resident_bytes, Child.kill

    def look(child: Child) -> int:
        use.look(child)
        return resident_bytes(child)

    def look_and_kill(child: Child) -> None:
        use.end(child)
        kill(child)

    with mock.patch.object(Child, "resident_bytes", look), mock.patch.object(Child, "kill", look_and_kill):
        yield use


async def nothing(_: float) -> None:
    """Progress is of no interest."""


async def read(sandbox: Sandbox, order: Order, seconds: float = PATIENCE_SECONDS) -> Found:
    return await sandbox.plan(order, seconds, nothing)


async def verdicts(files: list[BadFile], folder: Path) -> tuple[dict[str, object], dict[str, object]]:
    """The expected and the actual outcome of each file, with the resources it used if they were too many."""
    expected: dict[str, object] = {}
    found: dict[str, object] = {}
    with mock.patch.object(sandbox_module, "_REST_SECONDS", 0.0):
        sandbox = Sandbox()
        for file in files:
            path, scratch = folder / file.name, folder / "scratch"
            file.make(path)
            scratch.mkdir()
            expected[file.name] = file.code or (file.rows, file.bad)
            await sandbox.warm()
            began = time.monotonic()
            with measured() as use:
                try:
                    told = await read(sandbox, order_of(path, scratch))
                    found[file.name] = told.rows, told.bad_rows
                except FileRefused as refused:
                    found[file.name] = refused.code if 10 < len(str(refused)) <= 4_000 else refused
                except Exception as error:
                    found[file.name] = error
            if use.cpu_seconds > SECONDS or use.memory_mb > MEMORY_MB or left_over(use):
                found[file.name] = found[file.name], use, time.monotonic() - began, left_over(use)
            shutil.rmtree(scratch)
            path.unlink()
        await sandbox.close()
    return expected, found


def left_over(use: Use) -> list[int]:
    """Which of the children are still there, be it as zombies."""
    return [pid for pid in use.pids if psutil.pid_exists(pid)]

"""The sandbox: runs the planner in a child process, watches its memory and its time, and tells why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from rowlock.errors import FileRefused, StoreUnavailable
from rowlock.imports.order import Found, Order

_LOOK_SECONDS = 0.02
_REST_SECONDS = 3.0  # before the next child loads its libraries: let the chunks of a large file begin
_LARGE_BYTES = 1 << 20
_LINE_BYTES_MAX = 256 << 20  # an answer names every chunk, and the first bad records with their cells
_THREADS = "2"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Progress = Callable[[float], Awaitable[None]]


class Sandbox:
    """Reads files in child processes; one that has loaded its libraries waits for the next file."""

    def __init__(self) -> None:
        self._spare: asyncio.subprocess.Process | None = None
        self._spawning = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None

    async def warm(self) -> None:
        """Have a child ready: loading the libraries takes longer than reading a small file."""
        async with self._spawning:
            if self._spare is not None and self._spare.returncode is not None:
                self._spare = None
            if self._spare is None:
                self._spare = await _spawn()

    async def plan(self, order: Order, seconds: float, progress: Progress) -> Found:
        """Have a file read; raises FileRefused with the reason, also where the file kills or stalls its reader."""
        child, self._spare = self._spare, None
        if child is None or child.returncode is not None:
            child = await _spawn()
        try:
            return await _Reading(child, order, seconds, progress).outcome()
        finally:
            await _end(child)
            if self._warming is None or self._warming.done():
                self._warming = asyncio.create_task(self._warm_later(_large(order)))

    async def _warm_later(self, large: bool) -> None:
        await asyncio.sleep(_REST_SECONDS if large else 0.0)
        await self.warm()

    async def close(self) -> None:
        """End the child that waits."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        if self._spare is not None:
            await _end(self._spare)
            self._spare = None


class _Reading:
    """One child at work on one file."""

    def __init__(self, child: asyncio.subprocess.Process, order: Order, seconds: float, progress: Progress) -> None:
        self._child = child
        self._order = order
        self._seconds = seconds
        self._progress = progress
        self._killed: FileRefused | None = None
        self._begun = False

    async def outcome(self) -> Found:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it died before it heard us: its end tells
            self._child.stdin.write(self._order.encode())
            await self._child.stdin.drain()
        watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._answer()
        except TimeoutError:
            raise FileRefused(
                f"reading the file took longer than {self._seconds:g} seconds; split it", code="file_too_slow"
            ) from None
        finally:
            watching.cancel()
        if answer is None:
            raise await self._death()
        if "refused" in answer:
            raise FileRefused(answer["refused"], code=answer["code"], more=answer.get("more"))
        if "failed" in answer:
            raise StoreUnavailable(f"the chunks of {self._order.name} cannot be written: {answer['failed']}")
        return Found.decode(answer["found"])

    async def _answer(self) -> dict[str, Any] | None:
        """The last line that the child says, or None where it died first."""
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            told: dict[str, Any] = orjson.loads(line)
            if "done" not in told:
                return told
            self._begun = True
            await self._progress(told["done"])
        return None

    async def _watch(self) -> None:
        limit = self._order.memory_mb << 20
        while True:
            if _resident_bytes(self._child.pid) > limit:
                self._killed = FileRefused(
                    f"reading the file takes more than {self._order.memory_mb} MB of memory; split it, or raise "
                    f"ROWLOCK_IMPORT_PLAN_MEMORY_MB",
                    code="file_too_large",
                )
                self._child.kill()
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _death(self) -> FileRefused:
        """Why the child ended without a word."""
        code = await self._child.wait()
        if self._killed is not None:
            return self._killed
        if code == -signal.SIGXCPU:
            return FileRefused("reading the file takes too long; split it", code="file_too_slow")
        assert self._child.stderr is not None
        last = (await self._child.stderr.read())[-2_000:].decode(errors="backslashreplace").strip().splitlines()
        if last and "MemoryError" in last[-1]:
            return FileRefused("reading the file takes too much memory; split it", code="file_too_large")
        if not self._begun:
            raise RuntimeError(f"the process that reads files does not start: {last[-1] if last else code}")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else (last[-1] if last else f"exit code {code}")
        return FileRefused(
            f"the file cannot be read: its reader ended ({how}). Open it in a spreadsheet program and save it again",
            code="unreadable_file",
        )


def _large(order: Order) -> bool:
    try:
        return os.stat(order.path).st_size > _LARGE_BYTES
    except OSError:
        return False


async def _spawn() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rowlock.imports.planner",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
        env={
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "POLARS_MAX_THREADS": _THREADS,
            "LC_ALL": "C.UTF-8",
        },
    )


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    await asyncio.shield(asyncio.ensure_future(child.wait()))


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0  # it has ended, or this system does not tell

"""The sandbox: runs the planner in a child process, limits its memory and time, and reports why it ended."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from rowlock.errors import FileRefused
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.read.plan_result import Nonsense, judge, progress
from rowlock.imports.read.sandbox_process import Child, spawn
from rowlock.observe import logs

_LOOK_SECONDS = 0.01
_REST_SECONDS = 3.0  # delay before the next child loads its libraries, so that the chunks of a large file start first
_FREE_SECONDS = 0.5  # delay after the last chunk, in case another one starts
_POSTPONED_SECONDS_MAX = 30.0
_LARGE_BYTES = 1 << 20
_LAST_SECONDS = 1.0  # grace period for a child that has closed its output to exit
_MARGIN = 16  # 1/16 of the memory is reserved for growth between two checks
_FAULT = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,80}(?=:|$)")

Progress = Callable[[float], Awaitable[None]]


class Sandbox:
    """Reads files in child processes; keeps one spare child, with its libraries loaded, for the next file."""

    def __init__(self) -> None:
        self._spare: Child | None = None
        self._spawning = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._closed = False
        self._postponed = 0
        self._free = asyncio.Event()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """While this block runs, delay the spare child after a large file (at most 30 s): the block needs the CPU."""
        self._postponed += 1
        self._free.clear()
        try:
            yield
        finally:
            self._postponed -= 1
            if not self._postponed:
                self._free.set()

    async def warm(self) -> None:
        """Start the spare child if there is none: loading the libraries takes longer than reading a small file."""
        async with self._spawning:
            if self._spare is not None and self._spare.code is not None:
                await self._spare.end()
                self._spare = None
            if self._spare is None and not self._closed:
                self._spare = await spawn()

    async def plan(self, order: Order, seconds: float, progress: Progress) -> Found:
        """Have a file read; raises FileRefused with the reason, also if the file crashes or stalls its reader.

        Raises RuntimeError if the child does not start or something else killed it.
        """
        child, self._spare = self._spare, None
        if child is not None and child.code is not None:
            await child.end()
            child = None
        if child is None:
            child = await spawn()
        try:
            return await _Reading(child, order, seconds, progress).outcome()
        finally:
            await child.end()
            if not self._closed and (self._warming is None or self._warming.done()):
                self._warming = asyncio.create_task(self._warm_later(order.size_bytes > _LARGE_BYTES))

    async def _warm_later(self, large: bool) -> None:
        await asyncio.sleep(_REST_SECONDS if large else 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_POSTPONED_SECONDS_MAX):
                while large and self._postponed:
                    await self._free.wait()
                    await asyncio.sleep(_FREE_SECONDS)
        await self.warm()

    async def close(self) -> None:
        """End the spare child."""
        self._closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        if self._spare is not None:
            await self._spare.end()
            self._spare = None


class _Reading:
    """One child that reads one file."""

    def __init__(self, child: Child, order: Order, seconds: float, progress: Progress) -> None:
        self._child = child
        self._order = order
        self._seconds = seconds
        self._progress = progress
        self._too_large = False

    async def outcome(self) -> Found:
        self._child.tell(self._order.encode())
        watching = asyncio.create_task(self._watch())
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await self._listen()
        except TimeoutError:
            if not limit.expired():
                raise  # from the progress callback
            raise _too_slow(f"reading the file took longer than {self._seconds:g} seconds: split it") from None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if self._child.answer is None:
            raise await self._death()
        try:
            return await asyncio.to_thread(judge, self._child.answer, self._order)
        except Nonsense as nonsense:
            raise self._unreadable(f"its output is invalid: {nonsense}") from None

    async def _listen(self) -> None:
        """Wait until the child has answered or ended; reports its progress meanwhile."""
        child = self._child
        over = asyncio.create_task(child.over.wait())
        try:
            while not child.over.is_set():
                news = asyncio.create_task(child.news.wait())
                try:
                    await asyncio.wait((over, news), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if child.news.is_set() and not child.over.is_set():
                    child.news.clear()
                    try:
                        done = progress(child.progress or b"")
                    except Nonsense as nonsense:
                        raise self._unreadable(f"its output is invalid: {nonsense}") from None
                    await self._progress(done)
        finally:
            over.cancel()

    async def _watch(self) -> None:
        limit = self._order.memory_mb << 20
        while True:
            if self._child.resident_bytes() > limit - limit // _MARGIN:
                self._too_large = True
                self._child.kill()
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _death(self) -> Exception:
        """Return an exception that says why the child ended without an answer."""
        child = self._child
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await child.ended.wait()
        except TimeoutError:
            return self._unreadable("it stopped answering")
        if self._too_large:
            return FileRefused(
                f"reading the file takes more than {self._order.memory_mb} MB of memory: split it, or increase "
                f"ROWLOCK_IMPORT_PLAN_MEMORY_MB",
                code="file_too_large",
            )
        code, last = child.code or 0, child.last_words
        if code == -signal.SIGXCPU:
            return _too_slow("reading the file takes too much CPU time: split it")
        if "MemoryError" in last or "memory allocation of" in child.errors:
            return FileRefused("reading the file takes too much memory: split it", code="file_too_large")
        if child.stray:
            return self._unreadable("it wrote more output than expected")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if child.progress is None:
            return RuntimeError(f"the process that reads files does not start: {last or how}")
        if code == -signal.SIGKILL:  # not by us, so it says nothing about the file
            return RuntimeError(
                "the process that reads files was killed, possibly by the system because memory ran out"
            )
        if code > 0 and (fault := _FAULT.match(last)):
            how = fault[0]
        return self._unreadable(how)

    def _unreadable(self, how: str) -> Exception:
        """Return FileRefused, or RuntimeError if reading had not begun: then it is not the file's fault."""
        if self._child.progress is None:
            return RuntimeError(f"the process that reads files does not start: {how}")
        # The child's own message may contain paths and cells: only the operator sees it.
        logs.get().warning("import.reader_ended", how=how, last=self._child.last_words)
        return FileRefused(
            f"the file cannot be read: the reader stopped ({how}). Open it in a spreadsheet program and save it again",
            code="unreadable_file",
        )


def _too_slow(message: str) -> FileRefused:
    return FileRefused(message, code="file_too_slow")

"""Connections in threads of their own: SQLite blocks, the event loop must not.

    event loop ──work──▶ queue ──▶ thread: connection ──result──▶ event loop

A `Line` runs what it is given, a `Reader` each piece in one snapshot, a `Writer` all that waits in one commit.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.errors import SettingsError, StoreUnavailable
from rowlock.storage.sqlite.failures import BUSY_SECONDS, explained

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

BUSY_NAP_SECONDS = (0.0005, 0.004)
CACHE_KIB = 16_384
WAL_KEPT_BYTES = 64 * 1024 * 1024
GROUP_AT_MOST = 64
"""How many pieces of work one commit makes durable together."""

_PREFIX = "sqlite:///"


def path_of(url: str) -> Path:
    """The file that a URL names: sqlite:///relative.db or sqlite:////absolute.db."""
    name = url.removeprefix(_PREFIX)
    if not url.startswith(_PREFIX) or not name or name == ":memory:" or "?" in name or "\0" in name:
        raise SettingsError(f"{url!r} names no SQLite file: write sqlite:///relative.db or sqlite:////absolute.db")
    return Path(name).absolute()


def connect(path: Path) -> apsw.Connection:
    """A connection whose commits are on the disk when they return."""
    try:
        connection = apsw.Connection(str(path))
    except apsw.Error as error:
        raise explained(error, path) from error
    try:
        connection.set_busy_handler(Patience())
        if connection.readonly("main"):
            raise apsw.exception_for(apsw.SQLITE_READONLY)
        if connection.pragma("journal_mode") != "wal":
            connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
    except apsw.Error as error:
        connection.close()
        raise explained(error, path) from error
    return connection


class Patience:
    """Waits for another process's write, a little at a time.

    SQLite's own busy timeout sleeps up to 100 ms at a time, and so starves one of several busy processes.
    """

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, waits: int) -> bool:
        if waits == 0:
            self._until = time.monotonic() + BUSY_SECONDS
        time.sleep(random.uniform(*BUSY_NAP_SECONDS))  # noqa: S311 - spreads the processes, hides nothing
        return time.monotonic() < self._until


class _Task:
    """One piece of work and the future that waits for it."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def answer(self, result: object, error: BaseException | None = None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _settle(self, result: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Line:
    """A connection in a thread of its own, which does one piece of work after another."""

    _enforces = True  # the rules of the user's tables; Rowlock's own have none that refer to others

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.connection = connect(path)
        self.connection.pragma("foreign_keys", self._enforces)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=f"rowlock-{name}", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Do the work on the connection, in its thread; driver errors come back explained."""
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed: open the store before using it")
        if os.getpid() != self._process:
            raise StoreUnavailable(f"{self.path} was opened before this process forked: open a store of its own here")
        task = _Task(work)
        self._tasks.put(task)
        result: T = await task.future
        return result

    async def close(self) -> None:
        """Finish what was handed in, then let go of the file."""
        self._closed = True
        self._tasks.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            if not task.future.cancelled():
                self._do(task)
        self.connection.close()

    def _do(self, task: _Task) -> None:
        try:
            result = task.work(self.connection)
        except BaseException as error:
            task.answer(None, self._explained(error))
        else:
            task.answer(result)

    def _explained(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error):
            return error
        failure = explained(error, self.path)
        failure.__cause__ = error
        return failure


class Reader(Line):
    """Each piece of work sees one state of the store."""

    _enforces = False

    def _do(self, task: _Task) -> None:
        work = task.work

        def in_snapshot(connection: apsw.Connection) -> Any:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                roll_back(connection)

        task.work = in_snapshot
        super()._do(task)


Answer = tuple[_Task, object, BaseException | None]


class Writer(Line):
    """All work that waits goes into one transaction: one fsync makes it durable, then each is answered."""

    _enforces = False

    def _serve(self) -> None:
        task = self._tasks.get()
        while task is not None:
            group = [task]
            while len(group) < GROUP_AT_MOST and not self._tasks.empty() and (task := self._tasks.get()) is not None:
                group.append(task)
            if wanted := [member for member in group if not member.future.cancelled()]:
                self._do_together(wanted)
            if task is not None:
                task = self._tasks.get()
        self.connection.close()

    def _do_together(self, group: list[_Task]) -> None:
        try:
            answers = self._commit(group)
        except BaseException as error:
            # What was done in this transaction is undone, also for those whose own part went well.
            answers = [(task, None, self._explained(error)) for task in group]
        for task, result, failure in answers:
            task.answer(result, failure)

    def _commit(self, group: list[_Task]) -> list[Answer]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            answers = [self._part(task, alone=len(group) == 1) for task in group]
            if self.connection.in_transaction:
                self.connection.execute("COMMIT")
            return answers
        finally:
            roll_back(self.connection)

    def _part(self, task: _Task, alone: bool) -> Answer:
        """Do one task's part; undo it alone when it fails, unless SQLite has undone everything already."""
        if not alone:
            self.connection.execute("SAVEPOINT part")
        try:
            result = task.work(self.connection)
        except BaseException as error:
            if not self.connection.in_transaction:
                raise
            self.connection.execute("ROLLBACK" if alone else "ROLLBACK TO part; RELEASE part")
            return task, None, self._explained(error)
        if not alone:
            self.connection.execute("RELEASE part")
        return task, result, None


def roll_back(connection: apsw.Connection) -> None:
    """End the transaction that is still open, if one is."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")

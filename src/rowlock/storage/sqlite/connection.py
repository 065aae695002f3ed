"""Connections in threads of their own: SQLite blocks, the event loop must not.

    event loop ──work──▶ queue ──▶ thread: connection ──result──▶ event loop

A `Line` runs what it is given, a `Reader` each piece in one snapshot, a `Writer` all that waits in one commit.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.errors import SettingsError, StoreUnavailable
from rowlock.storage.sqlite.failures import BUSY_SECONDS, explained

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

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
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        if connection.readonly("main"):
            raise apsw.ReadOnlyError
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

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.connection = connect(path)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=f"rowlock-{name}", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Do the work on the connection, in its thread; driver errors come back explained."""
        if os.getpid() != self._process:
            raise StoreUnavailable(f"{self.path} was opened before this process forked: open a store of its own here")
        task = _Task(work)
        self._tasks.put(task)
        result: T = await task.future
        return result

    async def close(self) -> None:
        """Finish what was handed in, then let go of the file."""
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
        return explained(error, self.path) if isinstance(error, apsw.Error) else error


class Reader(Line):
    """Each piece of work sees one state of the store."""

    def _do(self, task: _Task) -> None:
        work = task.work

        def in_snapshot(connection: apsw.Connection) -> Any:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("COMMIT")

        task.work = in_snapshot
        super()._do(task)


class Writer(Line):
    """All work that waits goes into one transaction: one fsync makes it durable, then each is answered."""

    def _serve(self) -> None:
        task: _Task | None
        while (task := self._tasks.get()) is not None:
            group = [task]
            while len(group) < GROUP_AT_MOST and not self._tasks.empty():
                if (task := self._tasks.get()) is None:
                    break
                group.append(task)
            self._commit([member for member in group if not member.future.cancelled()])
            if task is None:
                break
        self.connection.close()

    def _commit(self, group: list[_Task]) -> None:
        answers: list[tuple[_Task, object, BaseException | None]] = []
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            for task in group:
                answers.append((task, *self._attempt(task, alone=len(group) == 1)))
            if self.connection.in_transaction:
                self.connection.execute("COMMIT")
        except BaseException as error:
            # Whatever was done in this transaction is undone, also for those whose own part went well.
            answers = [(task, None, self._explained(error)) for task in group]
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        for task, result, failure in answers:
            task.answer(result, failure)

    def _attempt(self, task: _Task, alone: bool) -> tuple[object, BaseException | None]:
        """Do one task's part; undo it alone when it fails, unless SQLite has undone everything already."""
        if not alone:
            self.connection.execute("SAVEPOINT part")
        try:
            result = task.work(self.connection)
        except BaseException as error:
            if not self.connection.in_transaction:
                raise
            self.connection.execute("ROLLBACK" if alone else "ROLLBACK TO part; RELEASE part")
            return None, self._explained(error)
        if not alone:
            self.connection.execute("RELEASE part")
        return result, None


def roll_back(connection: apsw.Connection) -> None:
    """End the transaction that is still open, if one is."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")

"""Connections with their own threads: SQLite blocks, the event loop must not.

    event loop ──work──▶ queue ──▶ thread: connection ──result──▶ event loop

A `SerialConnection` runs one piece of work at a time, a `Reader` each in a snapshot, a `Writer` commits waiting work
together.
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
from weakref import WeakSet

import apsw

from rowlock.errors import SettingsError, StoreUnavailable, ValueRefused
from rowlock.storage.sqlite.errors import BUSY_SECONDS, explained

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

BUSY_NAP_SECONDS = (0.0005, 0.004)
CACHE_KIB = 16_384
WAL_KEPT_BYTES = 64 * 1024 * 1024
GROUP_AT_MOST = 64
"""Pieces of work that one commit makes durable together."""

_PREFIX = "sqlite:///"


def path_of(url: str) -> Path:
    """Return the file of a URL: sqlite:///relative.db or sqlite:////absolute.db; raises SettingsError for others."""
    name = url.removeprefix(_PREFIX)
    if not url.startswith(_PREFIX) or not name or name == ":memory:" or "?" in name or "\0" in name:
        raise SettingsError(f"{url!r} names no SQLite file: write sqlite:///relative.db or sqlite:////absolute.db")
    return Path(name).absolute()


def connect(path: Path) -> apsw.Connection:
    """Open a connection whose commits are on disk when they return.

    Raises StoreUnavailable in a forked child whose parent had the file open: there SQLite mistakes the parent's locks
    for its own, and the two processes would overwrite each other's commits.
    """
    if path in _opened_by_parent:
        raise StoreUnavailable(
            f"{path} was open when this process forked, which SQLite's locks do not survive: fork before the first "
            "use, close the application before the fork, or start processes by spawn"
        )
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


_opened_by_parent: set[Path] = set()
_connections: WeakSet[SerialConnection] = WeakSet()


def open_files() -> set[Path]:
    """Return the files that this process has open in any store."""
    return {connection.path for connection in list(_connections) if connection.open}


def _after_fork_in_child() -> None:
    _opened_by_parent.update(open_files())
    _left_behind.extend(_connections)


_left_behind: list[
    SerialConnection
] = []  # kept alive in a child: closing a file there would release the parent's locks

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Patience:
    """Busy handler: waits in short naps, up to BUSY_SECONDS, while another process writes.

    SQLite's own busy timeout sleeps up to 100 ms at a time, which starves one of several busy processes.
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
            return  # the loop is closed: no caller waits for the result

    def _settle(self, result: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class SerialConnection:
    """A connection with its own thread, which runs one piece of work at a time."""

    _own = False  # whether only Rowlock's statements run on it: its tables have no foreign keys

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.connection = connect(path)
        self.connection.pragma("foreign_keys", not self._own)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._live, name=f"rowlock-{name}", daemon=True)
        self.open = True
        _connections.add(self)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Run the work on the connection, in its thread; driver errors are raised as StoreError."""
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed: open the store before using it")
        if os.getpid() != self._process:
            raise StoreUnavailable(f"{self.path} was opened before this process forked: open a store of its own here")
        task = _Task(work)
        self._tasks.put(task)
        result: T = await task.future
        return result

    async def close(self) -> None:
        """Finish the queued work, then close the file."""
        self.stop()
        await asyncio.to_thread(self._thread.join)

    def stop(self) -> None:
        """Accept no more work; the thread finishes the queued work, then closes the file."""
        if not self._closed:
            self._closed = True
            self._tasks.put(None)

    def _live(self) -> None:
        try:
            self._serve()
        finally:
            self.connection.close()
            self.open = False  # set here, since no caller may be waiting for this thread: from now on a fork is safe

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            if not task.future.cancelled():
                self._do(task)

    def _do(self, task: _Task) -> None:
        try:
            result = task.work(self.connection)
        except BaseException as error:
            task.answer(None, self._explained(error))
        else:
            task.answer(result)

    def _explained(self, error: BaseException) -> BaseException:
        failure: BaseException
        if isinstance(error, apsw.Error):
            failure = explained(error, self.path)
        elif self._own and isinstance(error, OverflowError | UnicodeError):
            failure = ValueRefused(f"{self.path} cannot hold a value: {error}")  # the driver cannot even bind it
        else:
            return error
        failure.__cause__ = error
        return failure


C = TypeVar("C", bound=SerialConnection)


async def started(kind: type[C], path: Path, name: str) -> C:
    """Open a connection in a thread, as the file may be slow; close it if the caller is cancelled meanwhile."""
    made: list[C] = []
    given_up = threading.Event()

    def make() -> C:
        made.append(kind(path, name))
        if given_up.is_set():
            made[0].stop()
        return made[0]

    try:
        return await asyncio.to_thread(make)
    except asyncio.CancelledError:
        given_up.set()
        for line in made:
            line.stop()
        raise


class Reader(SerialConnection):
    """Runs each piece of work in one snapshot of the store."""

    _own = True

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


class Writer(SerialConnection):
    """Commits all waiting work in one transaction: one fsync makes it durable, then each caller gets its answer."""

    _own = True

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

    def _do_together(self, group: list[_Task]) -> None:
        try:
            answers = self._commit(group)
        except BaseException as error:
            # The whole transaction was rolled back, including the parts that succeeded.
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
        """Run one task. If it fails, undo only this task; raise if SQLite has already rolled back the transaction."""
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
    """Roll back the open transaction, if any."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")

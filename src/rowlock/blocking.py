"""Run the async API from synchronous code, through an event loop in a background thread that starts on first use.

A forked child (gunicorn --preload, uWSGI, multiprocessing) does not have that thread and must not use its parent's
connections: the portal starts a new thread on first use there. SQLite's locks do not survive a fork, so the portal
closes SQLite connections before a fork.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # its fork hooks hold a lock: imported first, they run after ours
import gc
import os
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from rowlock.errors import StoreError
from rowlock.storage.records import JobRecord, Receipt

if TYPE_CHECKING:
    from rowlock.app import Rowlock

T = TypeVar("T")

CLOSE_SECONDS = 10.0
"""Seconds that close() waits for running calls before it cancels them."""


class Blocking:
    """The application's methods for synchronous callers; they run the async ones."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        _portals.add(self)

    def enqueue(
        self, type_name: str, payload: dict[str, Any] | None = None, *, connection: Any = None, **options: Any
    ) -> Receipt:
        """Like Rowlock.enqueue; `connection` is a synchronous connection, used in the calling thread."""
        if connection is not None:
            return self._app.enqueue_on(connection, [(type_name, {} if payload is None else payload)], **options)[0]
        return self.run(self._app.enqueue(type_name, payload, **options))

    def enqueue_many(
        self, jobs: Iterable[tuple[str, dict[str, Any]]], *, connection: Any = None, **options: Any
    ) -> list[Receipt]:
        """Like Rowlock.enqueue_many."""
        if connection is not None:
            return self._app.enqueue_on(connection, jobs, **options)
        return self.run(self._app.enqueue_many(jobs, **options))

    def get(self, job_id: str) -> JobRecord | None:
        """Like Rowlock.get."""
        return self.run(self._app.get(job_id))

    def migrate(self) -> list[str]:
        """Like Rowlock.migrate."""
        return self.run(self._app.migrate())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the application in the portal and return its result.

        Raises StoreError if close() in another thread cancelled it.
        """
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
            thread = self._thread
            call = asyncio.run_coroutine_threadsafe(work, thread.loop)
            thread.calls.add(call)
        try:
            return call.result()
        except concurrent.futures.CancelledError:
            if not thread.ending:
                raise
            raise StoreError(
                "app.blocking.close() cancelled this call, which may or may not have been done: close after the "
                "threads that use app.blocking have ended"
            ) from None
        finally:
            with self._lock:
                thread.calls.discard(call)

    def close(self) -> None:
        """Close the portal's connections and end its thread; idempotent.

        Waits up to 10 seconds for the calls of other threads, then cancels them. A later call starts a new thread.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            calls = [] if thread is None else list(thread.calls)
        if thread is not None:
            concurrent.futures.wait(calls, CLOSE_SECONDS)
            thread.end(self._finish())

    async def _finish(self) -> None:
        """Close the engine, then end the tasks and closing transports that its driver left in the loop."""
        try:
            await self._app.close()
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0)  # a transport closes its socket in the loop iteration after close()

    def _before_fork(self) -> None:
        thread = self._thread
        if thread is None or threading.current_thread() is thread:
            return
        if not self._app.settings.database_url.startswith("sqlite:"):
            return
        with self._lock:
            if self._thread is not thread or thread.calls:
                return  # running calls cannot be interrupted; the store refuses the file in the child
            self._thread = None
        thread.end(self._finish())

    def _after_fork_in_child(self) -> None:
        if self._thread is not None:
            _left_behind.append(self._thread)
            gc.freeze()  # collecting objects of the drivers would close the parent's connections
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._thread = None


class _LoopThread(threading.Thread):
    """An event loop in its own thread, and the calls that other threads wait for."""

    def __init__(self) -> None:
        super().__init__(name="rowlock-blocking", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.calls: set[Future[Any]] = set()
        self.ending = False
        self.start()

    def run(self) -> None:
        self.loop.run_forever()

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Run `last` in the loop, then stop and close the loop, even if `last` fails."""
        self.ending = True
        try:
            asyncio.run_coroutine_threadsafe(last, self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.join()
            self.loop.close()


_portals: WeakSet[Blocking] = WeakSet()
_left_behind: list[Any] = []  # the parent's threads: collecting them in a child would touch its connections


def _before_fork() -> None:
    for portal in list(_portals):
        portal._before_fork()


def _after_fork_in_child() -> None:
    for portal in list(_portals):
        portal._after_fork_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)

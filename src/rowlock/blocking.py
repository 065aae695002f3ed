"""The one portal from synchronous code: an event loop in a thread of its own, started when first used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.storage.records import JobRecord, Receipt

if TYPE_CHECKING:
    from rowlock.app import Rowlock

T = TypeVar("T")


class Blocking:
    """The application's verbs for callers without an event loop; no second implementation of any."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enqueue(
        self, type_name: str, payload: dict[str, Any] | None = None, *, connection: Any = None, **options: Any
    ) -> Receipt:
        """Like Rowlock.enqueue. A synchronous `connection` of the caller's is used in the calling thread."""
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
        """Run a coroutine of the application's in the portal and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._started()).result()

    def close(self) -> None:
        """Close the portal's connections and end its thread; idempotent."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="rowlock-blocking", daemon=True)
                self._thread.start()
            return self._loop

"""Wake-ups by polling `PRAGMA data_version`: it changes when another connection commits; a read takes microseconds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import apsw

from rowlock.storage.contract import Wake
from rowlock.storage.sqlite.connection import connect
from rowlock.storage.sqlite.errors import explained
from rowlock.storage.sqlite.rows import Row
from rowlock.storage.sqlite.sql import run

POLL_SECONDS = 0.005
BUSY_POLL_SECONDS = 0.002  # up to a second after a commit, when more are likely
BUSY_UNTIL_SECONDS = 1.0
IDLE_POLL_SECONDS = 0.02  # when nothing has happened for a minute
IDLE_AFTER_SECONDS = 60.0
ANY_QUEUE = "*"


async def listen(path: Path, wake: Wake) -> None:
    """Call `wake` in this event loop after every commit by any connection, until cancelled."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()
    stop = threading.Event()

    def tell(kind: str, name: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there are no listeners
            loop.call_soon_threadsafe(wake, kind, name)

    def fail(error: Exception) -> None:
        if not failed.done():
            failed.set_exception(error)

    def watch() -> None:
        try:
            _watch(path, tell, stop)
        except Exception as error:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(fail, explained(error, path) if isinstance(error, apsw.Error) else error)

    thread = threading.Thread(target=watch, name="rowlock-listen", daemon=True)
    thread.start()
    try:
        await failed
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)


def _watch(path: Path, tell: Wake, stop: threading.Event) -> None:
    connection = connect(path)
    try:
        told: set[Row] = set(run(connection, "wakes"))
        seen = None
        changed_at = time.monotonic()
        pause = 0.0
        while not stop.wait(pause):
            version = connection.execute("PRAGMA data_version").get
            if version != seen:
                # Also in the first round: earlier changes must not wait for the next commit.
                seen, changed_at = version, time.monotonic()
                told = _tell(connection, tell, told)
            pause = _pause(time.monotonic() - changed_at)
    finally:
        connection.close()


def _pause(quiet_seconds: float) -> float:
    if quiet_seconds < BUSY_UNTIL_SECONDS:
        return BUSY_POLL_SECONDS
    return POLL_SECONDS if quiet_seconds < IDLE_AFTER_SECONDS else IDLE_POLL_SECONDS


def _tell(connection: apsw.Connection, tell: Wake, told: set[Row]) -> set[Row]:
    """Call `tell` for the change, newly woken queues and new cancel requests; return all wakes and requests."""
    tell("queue", ANY_QUEUE)
    woken, cancelled = set(run(connection, "wakes")), set(run(connection, "cancel_requests"))
    for queue, _ in woken - told:
        tell("queue", queue)
    for (job_id,) in cancelled - told:
        tell("cancel", job_id)
    return woken | cancelled

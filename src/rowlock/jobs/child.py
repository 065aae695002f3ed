"""The worker process that a supervisor starts, told what to do by one JSON line."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from rowlock.errors import RowlockError
from rowlock.jobs.order import Order
from rowlock.jobs.payload import loads
from rowlock.jobs.slots import Slots
from rowlock.jobs.worker import WorkerProcess
from rowlock.observe import logs
from rowlock.storage.records import Held

# Loaded while the process is still a spare; by name, because the engine itself knows no store.
with contextlib.suppress(ImportError):
    importlib.import_module("rowlock.storage.postgres")

EXIT_FAILED = 1


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.run(work)
    return uvloop.run(work)


async def serve(order: Order, app: Any) -> int:
    """Work as ordered until told to stop, drained, or without a supervisor."""
    engine = app.engine
    log = logs.get(pid=os.getpid())
    worker = WorkerProcess(
        engine,
        order.queues,
        log,
        worker_id=order.worker_id,
        slots=Slots.shared(order.slots),
        concurrency=order.concurrency,
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    listening = asyncio.create_task(_obey(worker))
    try:
        await worker.run(drain=order.drain)
    finally:
        listening.cancel()
    return 0


async def _obey(worker: WorkerProcess) -> None:
    """Pass on what the supervisor's heartbeat found; its end of the pipe closing means that it is gone: stop."""
    reader = asyncio.StreamReader(limit=64 * 1_048_576)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        told = loads(line)
        worker.note_held([Held(*lease) for lease in told["held"]], told["asked_at"])
    worker.stop()


def main() -> None:
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:  # unbuffered: the rest is read later
        line = orders.readline()
    if not line:
        return  # the supervisor is gone before it needed us
    order = Order(**loads(line))
    sys.path[:] = order.path
    os.environ["DATABASE_URL"] = order.database_url
    module, _, attribute = order.app.partition(":")
    app = getattr(importlib.import_module(module), attribute)
    app.settings = app.settings.model_copy(update={"database_url": order.database_url})
    logs.configure(app.settings.log_level, app.settings.log_format, app.redact)
    gc.collect()
    gc.freeze()  # what is loaded stays: looking through all of it again would only hold up jobs
    try:
        code = run(serve(order, app))
    except RowlockError as error:
        logs.get(pid=os.getpid()).error("worker.failed", reason=str(error))
        code = EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of handlers that would not stop must not keep the process: their jobs were given back.
    os._exit(code)

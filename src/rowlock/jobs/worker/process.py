"""The worker process that a supervisor starts with a start request: one JSON line on standard input.

Standard input then becomes the control channel: a private descriptor, out of reach of handlers and their subprocesses.
If the channel ends for any reason, the worker stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rowlock import control_channel
from rowlock.errors import RowlockError
from rowlock.jobs.payload import loads
from rowlock.jobs.worker.start_request import StartRequest
from rowlock.jobs.worker.started_jobs import Slots
from rowlock.jobs.worker.worker import WorkerProcess
from rowlock.observe import logs
from rowlock.storage.records import Held

EXIT_FAILED = 1
LATE_SECONDS = 0.5  # beyond the grace period, before a worker without a supervisor is killed
_STORES = {
    "sqlite": "rowlock.storage.sqlite",
    "postgresql": "rowlock.storage.postgres",
    "postgres": "rowlock.storage.postgres",
    "mongodb": "rowlock.storage.mongo",
    "mongodb+srv": "rowlock.storage.mongo",
}


def preload(scheme: str) -> None:
    """Import what the application will need while the process is still a spare: of the stores, only its own.

    Imports by name, because the engine must not depend on stores or applications.
    """
    for name in (_STORES.get(scheme), "rowlock.app", "structlog"):
        if name is not None:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.run(work)
    return uvloop.run(work)


async def serve(request: StartRequest, app: Any, channel: int, slots: Slots) -> int:
    """Run the requested worker until it is stopped or drained or has lost its supervisor; returns the exit code."""
    engine = app.engine
    log = logs.get(pid=os.getpid())
    worker = WorkerProcess(
        engine,
        request.queues,
        log,
        worker_id=request.worker_id,
        slots=slots,
        concurrency=request.concurrency,
    )
    loop = asyncio.get_running_loop()
    checking = asyncio.create_task(engine.store.check_schema())  # the code may be newer or older than the supervisor's

    def stop() -> None:
        worker.stop()
        checking.cancel()  # a hanging store must not keep the process alive

    loop.add_signal_handler(signal.SIGTERM, stop)
    grace_seconds = engine.settings.grace_seconds + LATE_SECONDS
    leash = control_channel.Leash(partial(loop.call_soon_threadsafe, stop), grace_seconds)
    listening = asyncio.create_task(obey(worker, channel, leash.cut, log))
    try:
        await checking
        await worker.run(drain=request.drain)
    except asyncio.CancelledError:
        if not checking.cancelled():
            raise
    finally:
        listening.cancel()
    return 0


async def obey(worker: WorkerProcess, channel: int, ended: Callable[[], None], log: Any) -> None:
    """Pass on the leases that the supervisor's heartbeats find, until the channel ends or fails; then call `ended`."""
    reader = asyncio.StreamReader(limit=64 * 1_048_576)
    try:
        with os.fdopen(channel, "rb", buffering=0, closefd=False) as pipe:
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            while line := await reader.readline():
                message = loads(line)
                worker.note_held([Held(*lease) for lease in message["held"]], message["asked_at"])
        log.warning("worker.orphaned", reason="the supervisor has exited; this worker stops")
    except Exception as error:  # closed by a handler, or not JSON: the same as no supervisor
        reason = f"the control channel failed ({type(error).__name__}: {error}); this worker stops"
        log.error("worker.orphaned", reason=reason)
    ended()


def main(scheme: str, descriptor: int) -> None:
    """Run the worker that the first line of standard input describes, on a store whose URL has this scheme.

    `descriptor` is the memory of the table of started jobs.
    """
    control_channel.end_with_parent(signal.SIGTERM)
    channel = control_channel.take_standard_input(keep=[descriptor])
    preload(scheme)
    with open(channel, "rb", buffering=0, closefd=False) as requests:  # unbuffered: the rest is read later
        line = requests.readline()
    if not line:
        return  # the supervisor has exited before it needed this process
    request = StartRequest(**loads(line))
    slots = Slots.shared(descriptor)
    os.close(descriptor)  # the memory stays mapped
    logs.bridge()  # before the application is loaded, so that its own basicConfig() changes nothing
    logging.captureWarnings(True)
    sys.path[:] = request.path
    os.environ["DATABASE_URL"] = request.database_url
    module, _, attribute = request.app.partition(":")
    app = getattr(importlib.import_module(module), attribute)
    app.settings = app.settings.model_copy(update={"database_url": request.database_url})
    logs.configure(app.settings.log_level, app.settings.log_format, app.redact)
    gc.collect()
    gc.freeze()  # loaded objects stay: scanning them again would only delay jobs
    try:
        code = run(serve(request, app, channel, slots))
    except RowlockError as error:
        logs.get(pid=os.getpid()).error("worker.failed", reason=str(error))
        code = EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # Handler threads that do not stop must not keep the process alive: their jobs were released.
    os._exit(code)

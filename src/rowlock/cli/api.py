"""Runs the HTTP API: in this process for `rowlock serve`, as a child that is restarted for `rowlock up`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_RESTART_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0)  # the delay before a restart, by consecutive deaths
_STEADY_SECONDS = 30.0  # a process that lived longer resets the delay
_STOP_SECONDS = 8.0  # longer than the server's grace period for running requests
_ORDER_BYTES_MAX = 65_536


def serving() -> ModuleType:
    """Return the module that serves HTTP; raises SettingsError if its dependencies are not installed."""
    from rowlock.errors import SettingsError

    try:
        from rowlock.http import server as serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "rowlock":
            raise
        raise SettingsError(f"the HTTP API needs {error.name}: pip install 'rowlock[web]'") from None
    return serve


# -- the parent ------------------------------------------------------------------------------------


@asynccontextmanager
async def kept_serving(bound: socket.socket, app: Rowlock, name: str) -> AsyncIterator[None]:
    """Keep one server process running on this socket; its failures do not affect this process."""
    keeping = asyncio.create_task(_keep(bound, app.settings.database_url, name))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(bound: socket.socket, database_url: str, name: str) -> None:
    from rowlock.observe import logs

    log, deaths = logs.get(), 0
    while True:
        began = time.monotonic()
        try:
            code: Any = await _run(bound, database_url, name)
        except OSError as error:
            code = error.strerror
        deaths = 0 if time.monotonic() - began > _STEADY_SECONDS else deaths
        wait = _RESTART_SECONDS[min(deaths, len(_RESTART_SECONDS) - 1)]
        deaths += 1
        log.error("http.died", code=code, again_in_seconds=wait)
        await asyncio.sleep(wait)


async def _run(bound: socket.socket, database_url: str, name: str) -> int:
    """Run one server process and return its exit code; a cancellation ends the process."""
    descriptor = bound.fileno()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "rowlock", "serve", "--app", name, "--descriptor", str(descriptor)),
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(descriptor,),
        start_new_session=True,  # Ctrl-C reaches only this process: the API keeps serving while jobs end
    )
    assert process.stdin is not None
    try:
        # Not as an argument, which every user of this machine could read.
        process.stdin.write(database_url.encode() + b"\n")
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


# -- the child -------------------------------------------------------------------------------------


def take_order(listening: int) -> tuple[str, int]:
    """Return the database URL, the first line of standard input, and the descriptor that standard input moves to.

    Closes all other inherited descriptors except the socket `listening`.
    """
    from rowlock import control_channel
    from rowlock.errors import SettingsError

    control_channel.end_with_parent(signal.SIGTERM)
    channel = control_channel.take_standard_input(keep=[listening])
    with open(channel, "rb", buffering=0, closefd=False) as orders:  # unbuffered: the event loop watches the rest
        url = orders.readline(_ORDER_BYTES_MAX).decode().strip()
    if not url:
        raise SettingsError("--descriptor is for `rowlock up`, which sends the database URL on standard input")
    return url, channel


async def serve_until_told(app: Rowlock, bound: socket.socket, channel: int | None) -> None:
    """Serve until SIGTERM or SIGINT or, with a parent, until its end of the control channel closes."""
    from rowlock.control_channel import Leash

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if channel is None:
        await serving().serve(app, bound, stop)
        return
    leash = Leash(partial(loop.call_soon_threadsafe, stop.set), _STOP_SECONDS)

    def ended() -> None:
        loop.remove_reader(channel)
        leash.cut()

    loop.add_reader(channel, ended)
    try:
        await serving().serve(app, bound, stop)
    finally:
        leash.release()

"""The HTTP API as `rowlock serve` runs it, and as a process that `rowlock up` keeps running."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_RESTART_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0)  # the wait before a new process, by deaths in a row
_STEADY_SECONDS = 30.0  # a process that lived so long begins the row anew
_STOP_SECONDS = 8.0  # more than it gives to requests that are being answered
_ORDER_BYTES_MAX = 65_536


def serving() -> ModuleType:
    """What serves HTTP; raises SettingsError where it is not installed."""
    from rowlock.errors import SettingsError

    try:
        from rowlock.web import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "rowlock":
            raise
        raise SettingsError(f"the HTTP API needs {error.name}: pip install 'rowlock[web]'") from None
    return serve


# -- the parent ------------------------------------------------------------------------------------


@asynccontextmanager
async def kept_serving(bound: socket.socket, app: Rowlock, name: str) -> AsyncIterator[None]:
    """Keep one process serving on this socket; whatever becomes of it, nothing here is touched."""
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
    """One process, from its start to its end; when we are cancelled, we end it."""
    descriptor = bound.fileno()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "rowlock", "serve", "--app", name, "--descriptor", str(descriptor)),
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(descriptor,),
        start_new_session=True,  # the terminal's Ctrl-C is ours: the API goes on while jobs end
    )
    assert process.stdin is not None
    try:
        # Not as an argument, which everyone on this machine could read.
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


def ordered_database() -> str:
    """The database's URL, as the parent tells it on the first line of standard input."""
    from rowlock.errors import SettingsError

    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:  # unbuffered: the rest is waited for
        url = orders.readline(_ORDER_BYTES_MAX).decode().strip()
    if not url:
        raise SettingsError("--descriptor is for `rowlock up`, which names the database on standard input")
    return url


async def serve_until_told(app: Rowlock, bound: socket.socket, *, with_parent: bool) -> None:
    """Serve until SIGTERM or SIGINT; with a parent, until it is gone, too: its end of standard input closes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if with_parent:
        leash = sys.stdin.fileno()

        def let_go() -> None:
            loop.remove_reader(leash)
            stop.set()

        loop.add_reader(leash, let_go)
    await serving().serve(app, bound, stop)

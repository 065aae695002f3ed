"""Serves the HTTP API: one process, one event loop, on a socket of its own or an inherited one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn

from rowlock.app import Rowlock
from rowlock.errors import SettingsError
from rowlock.http.asgi import Api
from rowlock.http.connection import bounded
from rowlock.observe import logs

_BACKLOG = 4_096
_KEEP_ALIVE_SECONDS = 65  # longer than that of usual proxies, which would otherwise reuse a closed connection
_GRACE_SECONDS = 5
_LOOK_SECONDS = 0.005
_STUCK_SECONDS = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises SettingsError if the address is not available."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --host or --port"
        ) from None
    # asyncio sets it only on sockets that it creates; without it, each answer on a kept-alive connection takes 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # ends connections of clients that stop reading
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_SECONDS * 1_000)
    bound.set_inheritable(True)
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: Rowlock, bound: socket.socket, stop: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set or, without `stop`, until SIGTERM or SIGINT; then let running requests finish."""
    settings = app.settings
    api = Api(app)
    config = uvicorn.Config(
        api,
        http=bounded(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # Rowlock has its own log lines
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.http_trusted_proxies),
        forwarded_allow_ips=settings.http_trusted_proxies or None,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=_BACKLOG,
    )
    asked = stop or asyncio.Event()
    leave = asyncio.Event()
    server = _Server(config, leave)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if stop is None else ():
        loop.add_signal_handler(number, asked.set)
    stopping = asyncio.create_task(_stop(asked, api, leave))
    log = logs.get()
    log.info("http.listening", url=address(bound))
    try:
        await server.serve(sockets=[bound])
    finally:
        stopping.cancel()
        await api.close()
        log.info("http.stopped", url=address(bound) if bound.fileno() >= 0 else None)


async def _stop(asked: asyncio.Event, api: Api, leave: asyncio.Event) -> None:
    await asked.wait()
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await api.hub.close()  # an event stream never ends by itself
    except Exception as error:  # must not stop the shutdown, which cuts off what is left after the grace period
        logs.get().error("http.listeners_not_closed", reason=str(error) or type(error).__name__)
    finally:
        leave.set()


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers; it stops at once, not at its next tick."""

    def __init__(self, config: uvicorn.Config, leave: asyncio.Event) -> None:
        super().__init__(config)
        self._leave = leave

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers to `serve`."""
        yield

    async def main_loop(self) -> None:
        """Tick as uvicorn does, until `leave` is set."""
        ticking = asyncio.create_task(super().main_loop())
        leaving = asyncio.create_task(self._leave.wait())
        try:
            done, _ = await asyncio.wait((ticking, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            ticking.cancel()
            leaving.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, let running requests finish, and cancel them after the grace period.

        uvicorn's own method sleeps for 100 ms even if there are no connections.
        """
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        state = self.server_state
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                while state.connections or state.tasks:
                    for connection in list(state.connections):
                        connection.shutdown()  # closes at once if idle, otherwise after the answer
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            for task in list(state.tasks):
                task.cancel()

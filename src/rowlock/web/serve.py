"""Serving the HTTP API: one process, one event loop, a socket that may be someone else's."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn

from rowlock.app import Rowlock
from rowlock.errors import SettingsError
from rowlock.observe import logs
from rowlock.web.asgi import Api
from rowlock.web.connection import bounded

_BACKLOG = 4_096
_KEEP_ALIVE_SECONDS = 65  # longer than that of usual proxies, or they meet a closed connection
_GRACE_SECONDS = 5
_STUCK_SECONDS = 30


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises SettingsError where the address cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --host or --port"
        ) from None
    # asyncio sets it on sockets of its own making; without it, each answer on a kept connection waits for 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that takes nothing does not keep its connection for ever
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_SECONDS * 1_000)
    bound.set_inheritable(True)
    return bound


def address(bound: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: Rowlock, bound: socket.socket, stop: asyncio.Event | None = None) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; requests that are being answered are ended first."""
    settings = app.settings
    api = Api(app)
    config = uvicorn.Config(
        api,
        http=bounded(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what is worth a line is logged here
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.http_trusted_proxies),
        forwarded_allow_ips=settings.http_trusted_proxies or None,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=_BACKLOG,
    )
    server = _Server(config)
    asked = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT) if stop is None else ():
        loop.add_signal_handler(number, asked.set)
    stopping = asyncio.create_task(_stop(asked, api, server))
    log = logs.get()
    log.info("http.listening", url=address(bound))
    try:
        await server.serve(sockets=[bound])
    finally:
        stopping.cancel()
        await api.close()
        log.info("http.stopped", url=address(bound) if bound.fileno() >= 0 else None)


async def _stop(asked: asyncio.Event, api: Api, server: uvicorn.Server) -> None:
    await asked.wait()
    await api.hub.close()  # a listener would keep its connection for ever
    server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield

"""The clients of one integration: one per account, event loop and mode, over shared connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from rowlock.jobs.engine import Engine
from rowlock.observe import logs
from rowlock.observe.redaction import DEFAULT_WORDS
from rowlock.sync.client import Client, Meaning
from rowlock.sync.local_limiter import LocalLimiter
from rowlock.sync.rate_limit import RateLimit, keys_of
from rowlock.sync.request import Wire

_CONNECTIONS_MAX = 100
_CREDENTIALS = (*DEFAULT_WORDS, "auth", "cookie", "credential")  # parts of header names that mark credentials
_SECRET_LENGTH_MIN = 6  # shorter values would match in any text


@dataclass(frozen=True, slots=True)
class Address:
    """Base URL, headers and timeout of a service."""

    base_url: str
    headers: dict[str, str]
    timeout_seconds: float


class ClientPool:
    """Opens clients on first use."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        integration: str,
        limits: Sequence[RateLimit],
        meaning: Meaning,
        address: Address,
    ) -> None:
        self._engine = engine
        self._integration = integration
        self._limits = limits
        self._meaning = meaning
        self._address = address
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()

    def get(self, key: str, leased: bool) -> Client:
        """Return the account's client for the running event loop. If jobs have no lease, this process counts limits."""
        loop = asyncio.get_running_loop()
        here = self._open.get(loop)
        if here is None:
            where = self._address
            wire = Wire(where.base_url, where.headers, where.timeout_seconds, _CONNECTIONS_MAX)
            here = self._open[loop] = _Open(wire, LocalLimiter(), {})
        client = here.clients.get((key, leased))
        if client is None:
            client = here.clients[key, leased] = self._make(here, key, leased)
        return client

    def _make(self, here: _Open, key: str, leased: bool) -> Client:
        engine = self._engine()
        limits = {
            group: keys_of(key, [limit for limit in self._limits if limit.group in (None, group)])
            for group in {None, *(limit.group for limit in self._limits)}
        }
        return Client(
            self._integration,
            key,
            here.wire,
            engine.store if leased else here.local_limiter,
            limits,
            self._meaning,
            self._address.timeout_seconds,
            _secrets(self._address.headers),
            engine.measures,
            logs.get(),
        )

    async def close(self) -> None:
        """Close the clients of the running event loop."""
        here = self._open.pop(asyncio.get_running_loop(), None)
        if here is not None:
            for client in here.clients.values():
                await client.close()
            await here.wire.close()


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """Return the credentials in these headers, with and without their scheme, the longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        if any(word in name.lower() for word in _CREDENTIALS):
            found |= {value, value.partition(" ")[2]}
    return sorted((one for one in found if len(one) >= _SECRET_LENGTH_MIN), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class _Open:
    """The connections, local limiter and clients of one event loop."""

    wire: Wire
    local_limiter: LocalLimiter
    clients: dict[tuple[str, bool], Client]

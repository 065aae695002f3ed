"""The lines of one integration: one per account, event loop and mode, over shared connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from rowlock.jobs.engine import Engine
from rowlock.observe import logs
from rowlock.observe.redact import DEFAULT_WORDS
from rowlock.sync.allow import Allow, keys_of
from rowlock.sync.alone import Alone
from rowlock.sync.line import Line, Meaning
from rowlock.sync.wire import Wire

_CONNECTIONS_MAX = 100
_CREDENTIALS = (*DEFAULT_WORDS, "auth", "cookie", "credential")  # in the name of a header
_SECRET_LENGTH_MIN = 6  # what is shorter would be found in any text


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is, and how long it may take to answer."""

    base_url: str
    headers: dict[str, str]
    timeout_seconds: float


class Lines:
    """Opens lines when they are first needed."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        integration: str,
        limits: Sequence[Allow],
        meaning: Meaning,
        address: Address,
    ) -> None:
        self._engine = engine
        self._integration = integration
        self._limits = limits
        self._meaning = meaning
        self._address = address
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()

    def get(self, key: str, leased: bool) -> Line:
        """The line of an account in the running event loop; where jobs have no lease, limits are ours to keep."""
        loop = asyncio.get_running_loop()
        here = self._open.get(loop)
        if here is None:
            where = self._address
            wire = Wire(where.base_url, where.headers, where.timeout_seconds, _CONNECTIONS_MAX)
            here = self._open[loop] = _Open(wire, Alone(), {})
        line = here.lines.get((key, leased))
        if line is None:
            line = here.lines[key, leased] = self._make(here, key, leased)
        return line

    def _make(self, here: _Open, key: str, leased: bool) -> Line:
        engine = self._engine()
        limits = {
            group: keys_of(key, [limit for limit in self._limits if limit.group in (None, group)])
            for group in {None, *(limit.group for limit in self._limits)}
        }
        return Line(
            self._integration,
            key,
            here.wire,
            engine.store if leased else here.alone,
            limits,
            self._meaning,
            self._address.timeout_seconds,
            _secrets(self._address.headers),
            engine.measures,
            logs.get(),
        )

    async def close(self) -> None:
        """Close those of the running event loop."""
        here = self._open.pop(asyncio.get_running_loop(), None)
        if here is not None:
            for line in here.lines.values():
                await line.close()
            await here.wire.close()


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """The values of credentials among these headers, whole and without the scheme before them, the longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        if any(word in name.lower() for word in _CREDENTIALS):
            found |= {value, value.partition(" ")[2]}
    return sorted((one for one in found if len(one) >= _SECRET_LENGTH_MIN), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class _Open:
    """What is open in one event loop."""

    wire: Wire
    alone: Alone
    lines: dict[tuple[str, bool], Line]

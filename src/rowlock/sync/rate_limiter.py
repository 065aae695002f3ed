"""RateLimiter: grants permits for calls one by one, within limits that hold for the whole fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.storage.calls import CallLimit, PermitId

_END_SECONDS = 2.0


class Permits(Protocol):
    """The source of permits: the store, or, in resilient mode, this process alone."""

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float: ...

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None: ...

    async def rest_calls(self, key: str, seconds: float) -> None: ...


class Closed(Exception):
    """No call may be made for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no call may be made for {seconds:.1f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to make one call, soon."""

    id: PermitId
    asked_at: float  # this process's monotonic clock, before the store was asked

    def fresh(self, seconds: float) -> bool:
        """Whether it was requested less than `seconds` ago."""
        return time.monotonic() - self.asked_at < seconds


class RateLimiter:
    """Queues the callers of this process: only the first in line asks the store."""

    def __init__(self, permits: Permits, limits: Sequence[CallLimit], hold_seconds: float) -> None:
        self._permits = permits
        self._limits = limits
        self._hold_seconds = hold_seconds
        self._turn = asyncio.Lock()
        self._opens_at = 0.0
        self._ending: set[asyncio.Task[None]] = set()

    async def permit(self, patience_seconds: float) -> Permit:
        """Wait for a permit. Raises Closed if that would take longer than `patience_seconds`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + patience_seconds
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._turn.acquire()
        except TimeoutError:
            raise Closed(max(1.0, self._opens_at - loop.time())) from None
        try:
            while True:
                permit = Permit(uuid7(), time.monotonic())
                wait = await self._take(permit.id)
                if wait <= 0:
                    return permit
                self._opens_at = loop.time() + wait
                if self._opens_at > give_up_at:
                    raise Closed(wait)
                await asyncio.sleep(wait)
        finally:
            self._turn.release()

    async def _take(self, permit_id: PermitId) -> float:
        try:
            return await self._permits.take_call(permit_id, self._limits, self._hold_seconds)
        except BaseException:
            # The store may have granted it and the reply was lost: give it back, or let it expire.
            self.end_later(permit_id, made=False)
            raise

    def end_later(self, permit_id: PermitId, *, made: bool) -> None:
        """End a permit in the background. If the store is unreachable, the permit expires by itself."""
        task = asyncio.create_task(self._end(permit_id, made))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, permit_id: PermitId, made: bool) -> None:
        with suppress(StoreError):
            await self._permits.end_call(permit_id, made=made)

    async def close(self) -> None:
        """Wait up to _END_SECONDS for the background ends."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=_END_SECONDS)

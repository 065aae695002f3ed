"""Kept connection pools: in one event loop, for a few seconds, closed at the end."""

from __future__ import annotations

import asyncio

from conformance.idle_pools import IDLE_SECONDS_MAX, IdlePools


class Rack:
    """Pools that are names, a clock that is moved, and the names that were closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.now = 100.0
        self.pools = IdlePools(self._close, lambda: self.now)

    async def _close(self, pool: str) -> None:
        self.closed.append(pool)


async def test_a_kept_pool_is_taken_once() -> None:
    rack = Rack()
    async with rack.pools.kept():
        assert rack.pools.keep("url", "pool")
        assert not rack.pools.keep("url", "another")
        assert await rack.pools.take("url") == "pool"
        assert await rack.pools.take("url") is None
    assert rack.closed == []


async def test_a_pool_that_has_waited_too_long_is_closed_and_not_taken() -> None:
    rack = Rack()
    async with rack.pools.kept():
        rack.pools.keep("url", "pool")
        rack.now += IDLE_SECONDS_MAX + 0.1
        assert await rack.pools.take("url") is None
        assert rack.closed == ["pool"]


async def test_what_is_left_is_closed_at_the_end() -> None:
    rack = Rack()
    async with rack.pools.kept():
        rack.pools.keep("url", "pool")
    assert rack.closed == ["pool"]
    assert not rack.pools.keep("url", "late")


def test_no_other_event_loop_keeps_or_takes_a_pool() -> None:
    rack = Rack()

    async def elsewhere() -> None:
        assert not rack.pools.keep("other", "pool of another loop")
        assert await rack.pools.take("url") is None

    async def session() -> None:
        async with rack.pools.kept():
            rack.pools.keep("url", "pool")
            await asyncio.to_thread(asyncio.run, elsewhere())
            assert await rack.pools.take("url") == "pool"

    asyncio.run(session())

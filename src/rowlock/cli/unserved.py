"""Prints a note if a command waits for a queue that no worker serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rowlock.cli.output import Output
from rowlock.errors import RowlockError

if TYPE_CHECKING:
    from rowlock.cli.management import Management

_FIRST_LOOK_SECONDS = 0.5


@asynccontextmanager
async def watching_workers(
    management: Management, queue: Callable[[], Awaitable[str]], out: Output
) -> AsyncIterator[None]:
    """While the block waits, note once, after half a second, if no worker serves the queue.

    Says nothing if the caller may not see the fleet.
    """
    look = asyncio.create_task(_look(management, queue, out))
    try:
        yield
    finally:
        look.cancel()
        await asyncio.wait([look])


async def _look(management: Management, queue: Callable[[], Awaitable[str]], out: Output) -> None:
    await asyncio.sleep(_FIRST_LOOK_SECONDS)
    with suppress(RowlockError):
        name, workers = await queue(), (await management.health()).workers
        if not any(worker.alive and name in worker.queues for worker in workers):
            out.note(f"no worker serves the queue {name}; still waiting: start one with `rowlock worker`")

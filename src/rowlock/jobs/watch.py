"""The watch: sees when failures come in a spike, and has staff told of jobs that died."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from rowlock.errors import RowlockError
from rowlock.jobs.engine import Engine

HOUR_SECONDS = 3_600
NOTICE_TYPE = "rowlock.notice"
NOTICE_QUEUE = "rowlock"
_NOTICE_WAIT_SECONDS = 10.0  # deaths seldom come alone: the others go into the same message
_CLOSE_SECONDS = 5.0  # for the last check
_CHECK_SECONDS = 1.0  # between two checks, however many jobs die


class Watch:
    """Looks at what went wrong, in one process; the store lets one of all raise an alert."""

    def __init__(self, engine: Engine, log: Any) -> None:
        self._engine = engine
        self._log = log
        self._checked_at = -_CHECK_SECONDS
        self._hurry = asyncio.Event()  # the process ends: look now
        self._unseen = False  # something failed since the last check began
        self._checking: asyncio.Task[None] | None = None

    def on_failure(self) -> None:
        """A job has failed for good: look soon; failures that come together share a look."""
        self._unseen = True
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_soon())

    async def _check_soon(self) -> None:
        while self._unseen:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._checked_at + _CHECK_SECONDS - time.monotonic())):
                    await self._hurry.wait()
            self._unseen, self._checked_at = False, time.monotonic()
            try:
                await self.check()
            except RowlockError as error:
                self._log.warning("watch.delayed", reason=str(error))

    async def close(self) -> None:
        """What has failed is looked at before the process ends."""
        if self._checking is not None:
            self._hurry.set()
            # Not cancelled in the middle: an alert that is raised and not told would never be.
            await asyncio.wait({self._checking}, timeout=_CLOSE_SECONDS)
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def check(self) -> None:
        """Raise or end the alert of each queue, and see that deaths are told."""
        await self.spikes()
        await self.notices()

    async def spikes(self) -> None:
        """One line when the failures of a queue reach the threshold, one when they have fallen below it."""
        store, threshold = self._engine.store, self._engine.settings.spike_threshold
        failures: dict[str, int] = dict.fromkeys(self._engine.queues(), 0)
        for activity in await store.activity(HOUR_SECONDS):
            failures[activity.queue] = failures.get(activity.queue, 0) + activity.failures
        for queue, count in failures.items():
            told = {"failedLastHour": count, "threshold": threshold, "queueName": queue}
            if count >= threshold:
                if await store.raise_alert(f"spike:{queue}"):
                    self._log.error("queue.failure_spike", type="QUEUE_FAILURE_SPIKE", **told)
            elif (since := await store.clear_alert(f"spike:{queue}")) is not None:
                self._log.info(
                    "queue.failure_spike_over", type="QUEUE_FAILURE_SPIKE_OVER", since=since.isoformat(), **told
                )

    async def notices(self) -> None:
        """Have a message sent, by the queue itself: whatever happens to it, nothing else waits."""
        settings = self._engine.settings
        if not settings.notifies or not await self._engine.store.unsaid_deaths():
            return
        # Its key is held for as long as no other message may be sent, by anyone.
        wait = min(_NOTICE_WAIT_SECONDS, settings.notify_seconds)
        await self._engine.enqueuer.submit(self._engine.enqueuer.prepare(NOTICE_TYPE, {}, delay_seconds=wait))

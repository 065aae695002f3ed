"""The failure watch raises alerts for spikes of failures, and has staff notified of dead letters."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from rowlock.control import alerts
from rowlock.errors import RowlockError
from rowlock.jobs.engine import Engine
from rowlock.jobs.new_jobs import Options

HOUR_SECONDS = 3_600
NOTIFICATION_TYPE = "rowlock.notification_job"
NOTIFICATION_QUEUE = "rowlock"
_NOTIFICATION_WAIT_SECONDS = 10.0  # dead letters seldom come alone: the others go into the same message
_CLOSE_SECONDS = 5.0  # for the last check
_CHECK_SECONDS = 1.0  # between two checks, however many jobs fail


class FailureWatch:
    """Checks failures in one process; of all processes, the store lets only one raise an alert."""

    def __init__(self, engine: Engine, log: Any) -> None:
        self._engine = engine
        self._log = log
        self._checked_at = -_CHECK_SECONDS
        self._hurry = asyncio.Event()  # the process ends: check now
        self._unseen = False  # something failed since the last check began
        self._checking: asyncio.Task[None] | None = None

    def on_failure(self) -> None:
        """Check soon, since a job became a dead letter; concurrent failures share a check."""
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
        """Finish the pending check before the process ends."""
        if self._checking is not None:
            self._hurry.set()
            # Not cancelled midway: an alert that was raised but not logged would never be logged.
            await asyncio.wait({self._checking}, timeout=_CLOSE_SECONDS)
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def check(self) -> None:
        """Raise or end the alert of each queue, and enqueue a notification of new dead letters."""
        await self.spikes()
        await self.notices()

    async def spikes(self) -> None:
        """Log one line when a queue's failures of the last hour reach the threshold, one when they fall below it."""
        store, threshold = self._engine.store, self._engine.settings.spike_threshold
        failures: dict[str, int] = dict.fromkeys(self._engine.queues(), 0)
        for activity in await store.activity(HOUR_SECONDS):
            failures[activity.queue] = failures.get(activity.queue, 0) + activity.failures
        for queue, count in failures.items():
            details = {"failedLastHour": count, "threshold": threshold, "queueName": queue}
            if count >= threshold:
                if await alerts.start(store, f"spike:{queue}"):
                    self._log.error("queue.failure_spike", type="QUEUE_FAILURE_SPIKE", **details)
            elif (since := await alerts.clear(store, f"spike:{queue}")) is not None:
                self._log.info(
                    "queue.failure_spike_over", type="QUEUE_FAILURE_SPIKE_OVER", since=since.isoformat(), **details
                )

    async def notices(self) -> None:
        """Enqueue a notification job if there are new dead letters; nothing waits for it."""
        settings = self._engine.settings
        if not settings.notifies or not await self._engine.store.has_unnotified():
            return
        # Its unique key is held for as long as no process may send another message.
        wait = min(_NOTIFICATION_WAIT_SECONDS, settings.notify_seconds)
        await self._engine.enqueuer.enqueue(NOTIFICATION_TYPE, {}, Options(delay_seconds=wait))

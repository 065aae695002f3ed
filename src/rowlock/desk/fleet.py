"""The fleet: queues, health, metrics, retention."""

from __future__ import annotations

from rowlock.desk.sight import Sight
from rowlock.jobs.keeper import prune
from rowlock.jobs.registry import checked_name
from rowlock.observe import logs
from rowlock.observe.health import failures, queue_health
from rowlock.observe.metrics import exposition
from rowlock.shapes import Shape, queue_shape, worker_shape
from rowlock.storage.records import QueueRecord


class Fleet(Sight):
    """What may be asked about all companies at once."""

    async def queues(self) -> Shape:
        """Every queue of the application, and all others that hold jobs or are paused: {queues}."""
        return {"queues": [queue_shape(queue) for queue in await self._queues()]}

    async def totals(self) -> Shape:
        """How many jobs of each queue are there that have ended, by how they did: {queues}."""
        queues: dict[str, Shape] = {}
        for total in await self._app.store.totals():
            told = queues.setdefault(total.queue, {"succeeded": 0, "failed": 0, "cancelled": 0})
            for status in told:
                told[status] += getattr(total, status)
        return {"queues": queues}

    async def switch(self, queue: str, *, paused: bool) -> Shape:
        """Pause a queue for the whole fleet, or let it be worked on again; `known` is false where nobody uses it."""
        checked_name(queue, "queue")
        known = queue in {record.name for record in await self._queues()}
        await (self._app.store.pause(queue) if paused else self._app.store.resume(queue))
        return {"name": queue, "paused": paused, "known": known}

    async def queue_health(self, queue: str | None = None) -> Shape:
        """The health of one queue, in the shape that administrators know."""
        return await queue_health(self._app.store, self._app.settings, queue or self._app.settings.queue)

    async def health(self) -> Shape:
        """Is the store there, how many jobs are there, who works, and what is wrong?"""
        app = self._app
        standing = await self.standing()
        state = await app.store.schema()
        failed = await failures(app.store)
        warnings = standing["warnings"]
        if failed["failedLastHour"] >= app.settings.spike_threshold:
            warnings.append(
                f"{failed['failedLastHour']:,} attempts failed in the last hour: see `rowlock failures list`"
            )
        return {
            "status": "warning" if warnings else "ok",
            "database": app.store.url,
            "schema": {"current": state.current, "wanted": state.wanted},
            "jobs": standing["jobs"],
            "failures": failed,
            "queues": standing["queues"],
            "workers": standing["workers"],
            "warnings": warnings,
        }

    async def standing(self) -> Shape:
        """How jobs, queues and workers stand, and what is wrong with that: {jobs, queues, workers, warnings}."""
        app = self._app
        queues = await self._queues()
        counts = await app.store.counts()
        now = await app.store.now()
        workers = [worker_shape(w, now, app.settings.visibility_ms) for w in await app.store.workers()]
        hubs = [hub for hub in app.integrations.values() if hub.disabled is not None]
        off = {queue: f"{hub.name} is disabled: {hub.disabled}" for hub in hubs for queue in hub.queues}
        return {
            "jobs": {status.value: count for status, count in counts.items()},
            "queues": [queue_shape(queue) for queue in queues],
            "workers": workers,
            "warnings": _warnings(queues, {q for w in workers if w["alive"] for q in w["queues"]}, off),
        }

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return await exposition(self._app.store)

    async def prune(self) -> Shape:
        """Remove what retention lets go, now: {removed} by kind."""
        removed = await prune(self._app.engine, logs.get())
        kinds = {status.value: count for status, count in removed.jobs.items()}
        return {"removed": kinds | removed.records}

    async def _queues(self) -> list[QueueRecord]:
        """Those that the store knows, and those of the application that are empty."""
        found = {queue.name: queue for queue in await self._app.store.queues()}
        for name in self._app.engine.queues():
            found.setdefault(
                name, QueueRecord(name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)
            )
        return [found[name] for name in sorted(found)]


def _warnings(queues: list[QueueRecord], served: set[str], off: dict[str, str]) -> list[str]:
    warnings = []
    for queue in queues:
        if queue.paused:
            warnings.append(f"queue {queue.name} is paused ({queue.ready:,} jobs are ready)")
        elif queue.ready and queue.name in off:
            warnings.append(f"{queue.ready:,} jobs are ready on queue {queue.name}, and {off[queue.name]}")
        elif queue.ready and queue.name not in served:
            warnings.append(f"{queue.ready:,} jobs are ready on queue {queue.name} and no worker serves it")
    return warnings

"""The fleet: queues, health, metrics, retention."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.jobs.engine import Engine
from rowlock.jobs.registry import checked_name
from rowlock.jobs.worker.maintenance import prune
from rowlock.management.company_scope import CompanyScope
from rowlock.management.schemas import Shape, queue_shape, worker_shape
from rowlock.observe import logs
from rowlock.observe.health import failures, queue_health
from rowlock.observe.metrics import exposition
from rowlock.storage import blobs
from rowlock.storage.records import QueueRecord, WorkerRecord
from rowlock.storage.reliability import Total

UNSERVED_NAMED_MAX = 10  # how many types the warning names


class Fleet(CompanyScope):
    """Queries and commands about the whole fleet and all companies."""

    async def queues(self) -> Shape:
        """Every queue of the application, and all others that hold jobs or are paused: {queues}."""
        return {"queues": [queue_shape(queue) for queue in await self._queues()]}

    async def switch(self, queue: str, *, paused: bool) -> Shape:
        """Pause or resume a queue for the whole fleet; `known` is false if it is neither declared nor in use."""
        checked_name(queue, "queue")
        known = queue in {record.name for record in await self._queues()}
        await (self._app.store.pause(queue) if paused else self._app.store.resume(queue))
        return {"name": queue, "paused": paused, "known": known}

    async def queue_health(self, queue: str | None = None) -> Shape:
        """The health of one queue, as GET /api/admin/queue/health returns it."""
        return await queue_health(self._app.store, self._app.settings, queue or self._app.settings.queue)

    async def health(self) -> Shape:
        """Health of the store and the fleet: job counts, failures, queues, workers, and warnings."""
        app = self._app
        standing = await self.standing()
        state = await app.store.schema()
        failed = await failures(app.store)
        warnings = standing["warnings"]
        if app.importers and (reason := blobs.unusable_reason(app.settings.import_store)) is not None:
            warnings.append(f"this process cannot store the files of imports: {reason}")
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
            "unservedTypes": standing["unservedTypes"],
            "warnings": warnings,
        }

    async def standing(self) -> Shape:
        """Job counts, queues, workers, and warnings about them.

        {jobs, queues, ended, workers, unservedTypes, warnings}; `ended` counts the finished jobs of each queue.
        """
        app = self._app
        queues = await self._queues()
        counts = await app.store.counts()
        totals = await app.store.totals()
        now = await app.store.now()
        known = await app.store.workers()
        workers = [worker_shape(worker, now, app.settings.visibility_ms) for worker in known]
        alive = [worker for worker, shape in zip(known, workers, strict=True) if shape["alive"]]
        hubs = [hub for hub in app.integrations.values() if hub.disabled is not None]
        off = {queue: f"{hub.name} is disabled: {hub.disabled}" for hub in hubs for queue in hub.queues}
        unserved = unserved_types(totals, alive, app.engine)
        warnings = _warnings(queues, {queue for worker in alive for queue in worker.queues}, off)
        return {
            "jobs": {status.value: count for status, count in counts.items()},
            "queues": [queue_shape(queue) for queue in queues],
            "ended": _ended(totals),
            "workers": workers,
            "unservedTypes": unserved,
            "warnings": [*warnings, unserved_warning(unserved)] if unserved else warnings,
        }

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return await exposition(self._app.store)

    async def prune(self) -> Shape:
        """Apply the retention policies now: {removed}, counts by kind."""
        removed = await prune(self._app.engine, logs.get())
        kinds = {status.value: count for status, count in removed.jobs.items()}
        return {"removed": kinds | removed.records}

    async def _queues(self) -> list[QueueRecord]:
        """Return the queues that the store knows, and the empty ones of the application."""
        found = {queue.name: queue for queue in await self._app.store.queues()}
        for name in _declared(self._app.engine):
            found.setdefault(
                name, QueueRecord(name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)
            )
        return [found[name] for name in sorted(found)]


def unserved_types(totals: Sequence[Total], alive: Sequence[WorkerRecord], engine: Engine) -> list[Shape]:
    """Job types on a queue whose live workers have no handler for them: [{queue, type, jobs}].

    For a queue of this application that no worker serves, the application's own handlers count.
    """
    served = {queue: set(engine.types) for queue in _declared(engine)}
    known = [worker for worker in alive if worker.types]
    served |= {queue: set[str]() for worker in known for queue in worker.queues}
    for worker in known:
        for queue in worker.queues:
            served[queue].update(worker.types)
    return [
        {"queue": total.queue, "type": total.type, "jobs": total.alive}
        for total in totals
        if total.alive > 0 and total.queue in served and total.type not in served[total.queue]
    ]


def _declared(engine: Engine) -> tuple[str, ...]:
    """Return the queues of the application; one that declares nothing has none, not even the default queue."""
    return engine.queues() if engine.types or engine.profiles else ()


def unserved_warning(unserved: Sequence[Shape]) -> str:
    types = list(dict.fromkeys(each["type"] for each in unserved))
    more = f" and {len(types) - UNSERVED_NAMED_MAX:,} more" if len(types) > UNSERVED_NAMED_MAX else ""
    jobs = sum(each["jobs"] for each in unserved)
    return f"{jobs:,} jobs wait for types that no worker serves: {', '.join(types[:UNSERVED_NAMED_MAX])}{more}"


def _ended(totals: Sequence[Total]) -> dict[str, Shape]:
    queues: dict[str, Shape] = {}
    for total in totals:
        told = queues.setdefault(total.queue, {"succeeded": 0, "failed": 0, "cancelled": 0})
        for status in told:
            told[status] += getattr(total, status)
    return queues


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

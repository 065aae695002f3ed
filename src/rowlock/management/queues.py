"""The fleet: queues, health, metrics, retention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from rowlock.jobs.engine import Engine
from rowlock.jobs.registry import checked_name
from rowlock.jobs.worker.maintenance import prune
from rowlock.management.company_scope import CompanyScope
from rowlock.management.endpoint import Parameter, get, post
from rowlock.management.parameters import QueueParameter
from rowlock.management.schemas.base import Name
from rowlock.management.schemas.fleet import (
    DlqSchema,
    FailedSchema,
    HealthSchema,
    PrunedSchema,
    QueueCountsSchema,
    QueueHealthSchema,
    QueueSchema,
    QueuesSchema,
    SchemaStatus,
    SwitchedSchema,
    TopFailedSchema,
    UnservedTypeSchema,
    WorkerSchema,
)
from rowlock.observe import logs
from rowlock.observe.metrics import exposition
from rowlock.storage import blobs
from rowlock.storage.access import Role
from rowlock.storage.records import QueueRecord, Status, WorkerRecord
from rowlock.storage.reliability import Total

UNSERVED_NAMED_MAX = 10  # how many types the warning names


_HOUR_SECONDS = 3_600
_DAY_SECONDS = 24 * _HOUR_SECONDS
_TOP = 5


@dataclass(frozen=True, slots=True)
class Standing:
    """Job counts, queues, workers, and warnings about them; `ended` counts the finished jobs of each queue."""

    jobs: Mapping[Status, int]
    queues: Sequence[QueueSchema]
    ended: Mapping[str, Mapping[Status, int]]
    workers: Sequence[WorkerSchema]
    unserved_types: Sequence[UnservedTypeSchema]
    warnings: Sequence[str]


class Fleet(CompanyScope):
    """Queries and commands about the whole fleet and all companies."""

    @get("/api/v1/queues", "fleet", "List queues", fleet=True)
    async def queues(self) -> QueuesSchema:
        """Every queue of the application, and all others that hold jobs or are paused."""
        return QueuesSchema(queues=[QueueSchema.of(queue) for queue in await self._queues()])

    @post("/api/v1/queues/{name:path}/pause", "fleet", "Pause a queue", fleet=True)
    async def pause_queue(self, name: QueueParameter) -> SwitchedSchema:
        """None of its jobs starts, on any machine, until it is resumed. Running jobs continue."""
        known = await self._known(name)
        await self._app.store.pause(name)
        return SwitchedSchema(name=name, paused=True, known=known)

    @post("/api/v1/queues/{name:path}/resume", "fleet", "Resume a queue", fleet=True)
    async def resume_queue(self, name: QueueParameter) -> SwitchedSchema:
        """Its jobs start again, on every machine."""
        known = await self._known(name)
        await self._app.store.resume(name)
        return SwitchedSchema(name=name, paused=False, known=known)

    async def _known(self, name: str) -> bool:
        """Return whether a queue is declared or in use; raises SettingsError for what cannot be a name."""
        return checked_name(name, "queue") in {record.name for record in await self._queues()}

    @get("/api/admin/queue/health", "administration", "Health of a queue", role=Role.ADMIN, fleet=True, enveloped=True)
    async def queue_health(
        self,
        queue: Annotated[str | None, Parameter("The queue; default: the default queue.", Name | None)] = None,
    ) -> QueueHealthSchema:
        """From counters that the store keeps."""
        store, settings = self._app.store, self._app.settings
        queue = queue or settings.queue
        found = next((record for record in await store.queues() if record.name == queue), None)
        own = [total for total in await store.totals() if total.queue == queue]
        failed = await self._failures(queue)
        oldest = None if found is None else found.oldest_ready_seconds
        return QueueHealthSchema(
            queue_name=queue,
            resilient_mode=settings.resilient,
            counts=QueueCountsSchema(
                waiting=found.ready if found else 0,
                active=found.processing if found else 0,
                delayed=found.delayed if found else 0,
                failed=sum(total.failed for total in own),
                completed=sum(total.succeeded for total in own),
            ),
            oldest_waiting_age_sec=None if oldest is None else round(oldest),
            failed_last_hour=failed.failed_last_hour,
            top_failed_jobs=failed.top_failed_jobs,
            dlq=DlqSchema(
                failed_last_hour=failed.failed_last_hour,
                failed_last24h=failed.failed_last24h,
                retention_days=_whole(settings.keep_failure_days),
            ),
        )

    @get("/api/v1/health", "fleet", "Health of the database, queues and workers", fleet=True)
    async def health(self) -> HealthSchema:
        """Jobs, queues, workers and warnings, as in `rowlock health --json`."""
        app = self._app
        standing = await self.standing()
        state = await app.store.schema()
        failed = await self._failures()
        warnings = [*standing.warnings]
        if app.importers and (reason := blobs.unusable_reason(app.settings.import_store)) is not None:
            warnings.append(f"this process cannot store the files of imports: {reason}")
        if failed.failed_last_hour >= app.settings.spike_threshold:
            warnings.append(
                f"{failed.failed_last_hour:,} attempts failed in the last hour: see `rowlock failures list`"
            )
        return HealthSchema(
            status="warning" if warnings else "ok",
            database=app.store.url,
            schema_=SchemaStatus(current=state.current, wanted=state.wanted),
            jobs=dict(standing.jobs),
            failures=failed,
            queues=list(standing.queues),
            workers=list(standing.workers),
            unserved_types=list(standing.unserved_types),
            warnings=warnings,
        )

    async def standing(self) -> Standing:
        """Job counts, queues, workers, and warnings about them."""
        app = self._app
        queues = await self._queues()
        counts = await app.store.counts()
        totals = await app.store.totals()
        now = await app.store.now()
        known = await app.store.workers()
        workers = [WorkerSchema.of(worker, now, app.settings.visibility_ms) for worker in known]
        alive = [worker for worker, shown in zip(known, workers, strict=True) if shown.alive]
        disabled = [each for each in app.integrations.values() if each.disabled is not None]
        off = {queue: f"{each.name} is disabled: {each.disabled}" for each in disabled for queue in each.queues}
        unserved = unserved_types(totals, alive, app.engine)
        warnings = _warnings(queues, {queue for worker in alive for queue in worker.queues}, off)
        return Standing(
            jobs=counts,
            queues=[QueueSchema.of(queue) for queue in queues],
            ended=_ended(totals),
            workers=workers,
            unserved_types=unserved,
            warnings=[*warnings, unserved_warning(unserved)] if unserved else warnings,
        )

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return await exposition(self._app.store)

    @post("/api/admin/queue/prune", "administration", "Prune now", role=Role.ADMIN, fleet=True, enveloped=True)
    async def prune(self) -> PrunedSchema:
        """Applies the retention policies now; `removed` has counts by kind."""
        removed = await prune(self._app.engine, logs.get())
        kinds = {status.value: count for status, count in removed.jobs.items()}
        return PrunedSchema(removed=kinds | removed.records)

    async def _failures(self, queue: str | None = None) -> FailedSchema:
        """Failed attempts of the last hour and day, and which jobs fail most, of one queue or of all."""
        store = self._app.store
        hour = [each for each in await store.activity(_HOUR_SECONDS) if queue in (None, each.queue)]
        day = [each for each in await store.activity(_DAY_SECONDS) if queue in (None, each.queue)]
        worst: Counter[str] = Counter()
        for each in day:
            worst[each.type] += each.failures
        top = [TopFailedSchema(job_name=name, count=count) for name, count in worst.most_common(_TOP) if count]
        return FailedSchema(
            failed_last_hour=sum(each.failures for each in hour),
            failed_last24h=sum(each.failures for each in day),
            top_failed_jobs=top,
        )

    async def _queues(self) -> list[QueueRecord]:
        """Return the queues that the store knows, and the empty ones of the application."""
        found = {queue.name: queue for queue in await self._app.store.queues()}
        for name in _declared(self._app.engine):
            found.setdefault(
                name, QueueRecord(name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)
            )
        return [found[name] for name in sorted(found)]


def unserved_types(totals: Sequence[Total], alive: Sequence[WorkerRecord], engine: Engine) -> list[UnservedTypeSchema]:
    """Job types on a queue whose live workers have no handler for them.

    For a queue of this application that no worker serves, the application's own handlers count.
    """
    served = {queue: set(engine.types) for queue in _declared(engine)}
    known = [worker for worker in alive if worker.types]
    served |= {queue: set[str]() for worker in known for queue in worker.queues}
    for worker in known:
        for queue in worker.queues:
            served[queue].update(worker.types)
    return [
        UnservedTypeSchema(queue=total.queue, type=total.type, jobs=total.alive)
        for total in totals
        if total.alive > 0 and total.queue in served and total.type not in served[total.queue]
    ]


def _declared(engine: Engine) -> tuple[str, ...]:
    """Return the queues of the application; one that declares nothing has none, not even the default queue."""
    return engine.queues() if engine.types or engine.profiles else ()


def unserved_warning(unserved: Sequence[UnservedTypeSchema]) -> str:
    types = list(dict.fromkeys(each.type for each in unserved))
    more = f" and {len(types) - UNSERVED_NAMED_MAX:,} more" if len(types) > UNSERVED_NAMED_MAX else ""
    jobs = sum(each.jobs for each in unserved)
    return f"{jobs:,} jobs wait for types that no worker serves: {', '.join(types[:UNSERVED_NAMED_MAX])}{more}"


def _ended(totals: Sequence[Total]) -> dict[str, Counter[Status]]:
    queues: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for total in totals:
        queues[total.queue] += Counter(
            {Status.SUCCEEDED: total.succeeded, Status.FAILED: total.failed, Status.CANCELLED: total.cancelled}
        )
    return queues


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


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

"""The engine: the components that producers and workers of an application share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.jobs.enqueue import Enqueuer, Producer
from rowlock.jobs.locks import LockContext
from rowlock.jobs.new_jobs import JobBuilder
from rowlock.jobs.policy import QueueProfile
from rowlock.jobs.registry import JobType, Registry
from rowlock.jobs.schedule import Schedule
from rowlock.observe.metrics import Measures
from rowlock.observe.redaction import Redactor
from rowlock.settings import Settings
from rowlock.storage.contract import Store
from rowlock.storage.records import Limit


@dataclass(frozen=True, slots=True)
class Engine:
    """The components of one application on one store."""

    store: Store
    settings: Settings
    registry: Registry
    builder: JobBuilder
    enqueuer: Enqueuer
    producer: Producer  # of the application's calls: the enqueuer, or in resilient mode one that runs the jobs
    profiles: Mapping[str, QueueProfile]
    limits: Sequence[Limit]
    redact: Redactor
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    chores: Sequence[tuple[float, Callable[[], Awaitable[None]]]] = ()  # of maintenance: interval in seconds, function
    warmers: Sequence[Callable[[], Awaitable[None]]] = ()  # a worker calls them at start, so that its first job is fast
    starters: Sequence[Callable[[], Awaitable[None]]] = ()  # maintenance calls them once, at start-up
    unserved: Collection[str] = ()  # queues whose jobs cannot run here: workers serve them only if named
    measures: Measures = field(default_factory=Measures)

    @property
    def types(self) -> dict[str, JobType]:
        return {declared.name: declared for declared in self.registry}

    def queues(self) -> tuple[str, ...]:
        """Return the default queue, then every other queue that a handler or profile names and that can be served."""
        named = ({declared.queue for declared in self.registry} | set(self.profiles)) - set(self.unserved)
        named.discard(self.settings.queue)
        return (self.settings.queue, *sorted(named))

    def rescue_delays(self) -> dict[str, float]:
        return {p.name: p.rescue_delay_seconds for p in self.profiles.values() if p.rescue_delay_seconds}

    def heartbeat_seconds(self) -> float:
        """Return the heartbeat interval: at most a third of the shortest declared visibility timeout."""
        shortest = min([self.settings.visibility_ms, *(declared.visibility_ms for declared in self.registry)])
        return min(self.settings.heartbeat_ms, shortest / 3) / 1000

    def lock_context(self, log: Any, store: Store | None = None) -> LockContext:
        """Return what idempotency locks need; `store` replaces the engine's."""
        stale_seconds = self.settings.lock_stale_minutes * 60
        return LockContext(store or self.store, stale_seconds, self.redact, self.measures, log)

    def concurrency(self, queue: str) -> int:
        profile = self.profiles.get(queue)
        return (profile and profile.concurrency) or self.settings.concurrency

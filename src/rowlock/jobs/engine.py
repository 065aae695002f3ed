"""What the parts of a worker are wired with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rowlock.jobs.enqueue import Enqueuer
from rowlock.jobs.policy import Backoff, QueueProfile
from rowlock.jobs.registry import JobType, Registry
from rowlock.jobs.schedule import Schedule
from rowlock.observe.metrics import Measures
from rowlock.observe.redact import Redactor
from rowlock.settings import Settings
from rowlock.storage.base import Store
from rowlock.storage.records import Limit


@dataclass(frozen=True, slots=True)
class Engine:
    """One application on one store."""

    store: Store
    settings: Settings
    registry: Registry
    enqueuer: Enqueuer
    profiles: Mapping[str, QueueProfile]
    limits: Sequence[Limit]
    redact: Redactor
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    chores: Sequence[tuple[float, Callable[[], Awaitable[None]]]] = ()  # for the keeper: how often, and what
    warmers: Sequence[Callable[[], Awaitable[None]]] = ()  # what a worker does ahead, so that the first job is quick
    unserved: Collection[str] = ()  # queues whose jobs could not be done here: no worker serves them unasked
    measures: Measures = field(default_factory=Measures)

    @property
    def types(self) -> dict[str, JobType]:
        return {declared.name: declared for declared in self.registry}

    @property
    def backoff(self) -> Backoff:
        """How jobs of unknown type retry."""
        s = self.settings
        return Backoff(s.max_attempts, s.backoff_base_seconds, s.backoff_factor, s.backoff_max_seconds)

    def queues(self) -> tuple[str, ...]:
        """Every queue that some handler or profile names and that can be served, the default one first."""
        named = ({declared.queue for declared in self.registry} | set(self.profiles)) - set(self.unserved)
        named.discard(self.settings.queue)
        return (self.settings.queue, *sorted(named))

    def rescue_delays(self) -> dict[str, float]:
        return {p.name: p.rescue_delay_seconds for p in self.profiles.values() if p.rescue_delay_seconds}

    def heartbeat_seconds(self) -> float:
        """Often enough for the shortest visibility timeout in use."""
        shortest = min([self.settings.visibility_ms, *(declared.visibility_ms for declared in self.registry)])
        return min(self.settings.heartbeat_ms, shortest / 3) / 1000

    def concurrency(self, queue: str) -> int:
        profile = self.profiles.get(queue)
        return (profile and profile.concurrency) or self.settings.concurrency

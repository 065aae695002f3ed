"""Metrics: workers add their numbers to the store, from which any process can expose the whole fleet.

Worker processes cannot be scraped: they come and go, and a machine runs many. So the store keeps the numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from rowlock.errors import SettingsError
from rowlock.storage.contract import Store
from rowlock.storage.reliability import Measure

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Labels = Mapping[str, str]

RUN_BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0)
CLAIM_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

_HISTOGRAMS = {
    "run_seconds": (RUN_BOUNDS, "Duration of handlers in seconds"),
    "claim_seconds": (CLAIM_BOUNDS, "Duration of claims in seconds"),
}
_COUNTERS = {
    "retried": "Failed attempts that are retried",
    "rescued": "Jobs rescued from workers that stopped sending heartbeats",
    "lease_lost": "Attempts whose lease was lost before they ended",
    "lock": "Requests for idempotency locks, by outcome",
    "schedule_run": "Schedule runs, by outcome",
    "notice": "Notifications, by outcome",
    "sync_call": "Outbound calls, by kind of response",
    "sync_rest": "Pauses that a service asked for with a rate limit response",
}


class Measures:
    """The numbers of this process that it has not added to the store yet."""

    def __init__(self) -> None:
        self._numbers: defaultdict[Measure, float] = defaultdict(float)

    def add(self, name: str, labels: Labels, number: float = 1.0) -> None:
        self._numbers[Measure(name, _text(labels))] += number

    def observe(self, name: str, labels: Labels, values: Sequence[float]) -> None:
        """Add many values to a histogram at once: find each bound in the sorted values."""
        if not values:
            return
        bounds, _ = _HISTOGRAMS[name]
        text, ordered = _text(labels), sorted(values)
        below = 0
        for bound in bounds:
            count = bisect_right(ordered, bound) if ordered[-1] >= bound else len(ordered)
            if count > below:
                self._numbers[Measure(f"{name}:{bound:g}", text)] += count - below
            below = count
        self._numbers[Measure(f"{name}:sum", text)] += sum(values)
        self._numbers[Measure(f"{name}:count", text)] += len(values)

    def take(self) -> dict[Measure, float]:
        """Return the numbers so far, and reset them."""
        taken, self._numbers = dict(self._numbers), defaultdict(float)
        return taken

    def restore(self, taken: Mapping[Measure, float]) -> None:
        """Add back numbers that did not reach the store: they go with the next."""
        for measure, number in taken.items():
            self._numbers[measure] += number


def _text(labels: Labels) -> str:
    return orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()


async def exposition(store: Store) -> bytes:
    """The metrics of the whole fleet in Prometheus's text format."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise SettingsError("metrics need the extra `metrics`: pip install 'rowlock[metrics]'") from None
    families = await collect(store)

    class Collected:
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry)


async def collect(store: Store) -> list[Metric]:
    """Return gauges of the jobs, queues and workers, and the counters and histograms of all workers."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    jobs = GaugeMetricFamily("rowlock_jobs", "Number of jobs", labels=["queue", "type", "status"])
    for total in await store.totals():
        numbers = {"alive": total.alive, "succeeded": total.succeeded, "failed": total.failed}
        for status, number in (numbers | {"cancelled": total.cancelled}).items():
            jobs.add_metric([total.queue, total.type, status], number)
    waiting = GaugeMetricFamily("rowlock_queue_jobs", "Number of jobs in a queue", labels=["queue", "state"])
    age = GaugeMetricFamily(
        "rowlock_queue_oldest_seconds", "Age of the oldest available job in seconds", labels=["queue"]
    )
    paused = GaugeMetricFamily("rowlock_queue_paused", "1 while a queue is paused", labels=["queue"])
    for queue in await store.queues():
        for state in ("ready", "delayed", "processing"):
            waiting.add_metric([queue.name, state], getattr(queue, state))
        age.add_metric([queue.name], queue.oldest_ready_seconds or 0.0)
        paused.add_metric([queue.name], float(queue.paused))
    failures = GaugeMetricFamily(
        "rowlock_failures_last_hour", "Failed attempts in the last hour", labels=["queue", "type"]
    )
    for activity in await store.activity(3_600):
        failures.add_metric([activity.queue, activity.type], activity.failures)
    workers = GaugeMetricFamily("rowlock_workers", "Workers that send heartbeats")
    workers.add_metric([], len(await store.workers()))
    measures = await store.measures()
    counters: list[Metric] = []
    for name, help_text in _COUNTERS.items():
        mine = {measure.labels: number for measure, number in measures.items() if measure.name == name}
        names = sorted({key for text in mine for key in orjson.loads(text)})
        family = CounterMetricFamily(f"rowlock_{name}", help_text, labels=names)
        for text, value in mine.items():
            labels = orjson.loads(text)
            family.add_metric([str(labels.get(key, "")) for key in names], value)
        counters.append(family)
    return [jobs, waiting, age, paused, failures, workers, *counters, *_histograms(measures)]


def _histograms(measures: Mapping[Measure, float]) -> list[Metric]:
    from prometheus_client.metrics_core import HistogramMetricFamily

    families: list[Metric] = []
    for name, (bounds, help_text) in _HISTOGRAMS.items():
        texts = sorted({m.labels for m in measures if m.name == f"{name}:count"})
        names = sorted({key for text in texts for key in orjson.loads(text)})
        family = HistogramMetricFamily(f"rowlock_{name}", help_text, labels=names)
        for text in texts:
            labels = orjson.loads(text)
            reached, buckets = 0.0, []
            for bound in bounds:
                reached += measures.get(Measure(f"{name}:{bound:g}", text), 0.0)
                buckets.append((f"{bound:g}", reached))
            buckets.append(("+Inf", measures[Measure(f"{name}:count", text)]))
            total = measures.get(Measure(f"{name}:sum", text), 0.0)
            family.add_metric([str(labels.get(key, "")) for key in names], buckets, total)
        families.append(family)
    return families

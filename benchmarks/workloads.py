"""The workloads. Each is one measurement of one system; the driver repeats it, with the systems taking turns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients import Bench, ClientError, Workers, call, workers
from benchmarks.drain import COSTS, drain
from benchmarks.mongod import Mongod
from benchmarks.places import Place, PostgresPlace, place
from benchmarks.plan import Plan
from benchmarks.server import Server
from benchmarks.systems import Settings, Store, System

Figures = dict[str, Any]


@dataclass(slots=True)
class Context:
    bench: Bench
    plan: Plan
    server: Server | None
    mongod: Mongod | None
    filled: dict[str, Figures] = field(default_factory=dict)

    def place(self, system: System, purpose: str) -> Place:
        return place(system, purpose, self.server, self.mongod, Path(self.bench.data))

    def call(self, system: System, where: Place, settings: Settings, command: str, *numbers: int) -> Figures:
        return call(self.bench, system, where, settings, command, *numbers)

    def full(self, system: System, settings: Settings) -> Figures:
        """Fill this system's store once, to be copied for every drain; return what was written."""
        if system.name not in self.filled:
            where = self.place(system, "full")
            where.reset()
            self.call(system, where, settings, "setup")
            self.filled[system.name] = self.call(system, where, settings, "fill", self.plan.filled, self.plan.filled)
            where.settle(vacuum=True)
        return self.filled[system.name]

    @contextlib.contextmanager
    def empty(self, system: System, settings: Settings) -> Iterator[Place]:
        """Create an empty store with the system's schema; remove it afterwards."""
        where = self.place(system, "run")
        where.reset()
        try:
            self.call(system, where, settings, "setup")
            yield where
        finally:
            where.remove()


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    run: Callable[[Context, System], Figures]
    applies: Callable[[System], bool] = lambda system: True
    once: bool = False


def _enqueue(command: str, size: Callable[[Plan], tuple[int, ...]]) -> Callable[[Context, System], Figures]:
    def run(context: Context, system: System) -> Figures:
        with context.empty(system, system.best) as where:
            where.settle()
            told = context.call(system, where, system.best, command, *size(context.plan))
        return {"rate": told["jobs"] / told["seconds"], "jobs": told["jobs"]}

    return run


def _drain(which: str, processes: int, logged: bool = False) -> Callable[[Context, System], Figures]:
    def run(context: Context, system: System) -> Figures:
        settings: Settings = getattr(system, which)
        # Twice the jobs for two processes: jobs that run before both processes work are not counted.
        jobs = context.plan.drained * processes
        with context.empty(system, settings) as where:
            context.call(system, where, settings, "load", jobs)
            if logged and isinstance(where, PostgresPlace):
                where.log_statements()
            where.settle()
            return drain(context.bench, context.plan, system, where, settings, jobs, processes)

    return run


def _latency(context: Context, system: System) -> Figures:
    settings, plan = system.latency_settings, context.plan
    with context.empty(system, settings) as where, workers(context.bench, system, where, settings, 1) as running:
        where.settle()
        _wait_until_idle(context, system, where, settings, running)
        called = context.call(system, where, settings, "paced", plan.latency_jobs, plan.latency_per_second)["called_ns"]
        end = time.monotonic() + plan.settle_seconds_max
        while running.record.read() < plan.latency_jobs and time.monotonic() < end:
            time.sleep(0.05)
    first: dict[int, int] = {}
    for at, number, _ in running.record.starts():
        first.setdefault(number, at)
    waits = sorted((first[number] - at) / 1e6 for number, at in enumerate(called) if number in first)
    if not waits:
        raise ClientError("no job of the latency run was started")
    at_rank = {f"p{rank}_ms": waits[min(len(waits) - 1, len(waits) * rank // 100)] for rank in (50, 95, 99)}
    return at_rank | {"max_ms": waits[-1], "jobs": len(waits), "capped": len(waits) < plan.latency_jobs}


def _idle(context: Context, system: System) -> Figures:
    with context.empty(system, system.default) as where:
        assert isinstance(where, PostgresPlace)
        where.log_statements()
        with workers(context.bench, system, where, system.default, 1) as running:
            _wait_until_idle(context, system, where, system.default, running)
            before = where.counters()
            time.sleep(context.plan.idle_seconds)
            after = where.counters()
    return {"statements_per_minute": where.statements(before, after) * 60 / context.plan.idle_seconds}


def _health(context: Context, system: System) -> Figures:
    with context.empty(system, system.default) as where:
        plan = context.plan
        told = context.call(
            system, where, system.default, "health", plan.health_jobs, plan.health_jobs, plan.health_asked
        )
    took = sorted(told["milliseconds"])
    return {"median_ms": took[len(took) // 2], "max_ms": took[-1], "jobs": plan.health_jobs}


def _pages(context: Context, system: System) -> Figures:
    plan, settings = context.plan, system.default
    with context.empty(system, settings) as where:
        told = context.call(system, where, settings, "pages", plan.health_jobs, plan.pages_asked)
        if isinstance(where, PostgresPlace):
            where.log_statements()
            where.settle()
            spent = []
            for pages in (1, 1, plan.pages_open):  # the first reads a million jobs that have just changed: not counted
                before = where.counters()
                context.call(system, where, settings, "open-pages", pages, plan.pages_open_seconds)
                spent.append(where.statements(before, where.counters()))
            _, one, many = spent
            told |= {"one_statements": one, "open_statements": many, "open_share": many / one}
    return told | {"jobs": plan.health_jobs}


def _http(context: Context, system: System) -> Figures:
    with context.empty(system, system.default) as where:
        where.settle()
        plan = context.plan
        return context.call(system, where, system.default, "http", plan.http_requests, plan.http_connections)


def _wait_until_idle(context: Context, system: System, where: Place, settings: Settings, running: Workers) -> None:
    """Let the worker run one job, which shows that it is up, and wait until it is idle."""
    context.call(system, where, settings, "one", 0)
    end = time.monotonic() + context.plan.start_seconds_max
    while not running.record.words and time.monotonic() < end:
        running.check()
        running.record.read()
        time.sleep(0.05)
    time.sleep(2.0)


def _deep(old_transaction: bool) -> Callable[[Context, System], Figures]:
    def run(context: Context, system: System) -> Figures:
        settings, jobs = system.judged_settings, context.plan.drained
        filled = context.full(system, settings)
        where = context.place(system, "run")
        where.copy(context.place(system, "full"))
        try:
            with where.old_transaction() if old_transaction else contextlib.nullcontext():
                context.call(system, where, settings, "load", jobs)
                where.settle()
                found = drain(context.bench, context.plan, system, where, settings, jobs, 1, full=True)
        finally:
            where.remove()
        # Without costs: the worker continues with the filler jobs, whose costs would be included.
        return {key: value for key, value in found.items() if key not in COSTS} | {"filled": filled}

    return run


def _differs(system: System) -> bool:
    return dict(system.default) != dict(system.best)


def _has_own_batch(system: System) -> bool:
    return system.batch is not None and dict(system.batch) != dict(system.best)


def _is_rowlock(system: System) -> bool:
    return system.package == "rowlock"


def _is_postgresql(system: System) -> bool:
    return system.store is Store.POSTGRESQL


WORKLOADS: tuple[Workload, ...] = (
    Workload("one", "enqueued one by one", _enqueue("one", lambda plan: (plan.enqueued_one_by_one,))),
    Workload("bulk", "enqueued in bulk", _enqueue("bulk", lambda plan: (plan.enqueued_in_bulk,))),
    Workload(
        "concurrent",
        "enqueued by 50 at once",
        _enqueue("concurrent", lambda plan: (plan.enqueued_concurrently, plan.enqueuers)),
    ),
    Workload("drain", "drained by one process", _drain("judged_settings", 1)),
    Workload("drain-2", "drained by two processes", _drain("judged_settings", 2)),
    Workload("batch", "drained by a batch handler", _drain("batch", 1), _has_own_batch),
    Workload("deep", "drained on top of waiting and finished jobs", _deep(False), lambda system: system.fills),
    Workload("deep-old", "the same, an old transaction open", _deep(True), lambda system: system.fills),
    Workload("latency", "enqueue to start, idle worker", _latency),
    Workload("statements", "statements per job", _drain("judged_settings", 1, logged=True), _is_postgresql, once=True),
    Workload("idle", "statements of an idle worker", _idle, _is_postgresql, once=True),
    Workload("health", "health of a full store", _health, _is_rowlock, once=True),
    Workload("pages", "the overview of a full store", _pages, _is_rowlock, once=True),
    Workload("http", "enqueued over HTTP", _http, _is_rowlock, once=True),
    Workload("drain-other", "drained with the other settings, one process", _drain("other_settings", 1), _differs),
    Workload("drain-other-2", "the same, two processes", _drain("other_settings", 2), _differs),
)

"""One drain: workers on a full queue, from the first handler's start until the store has every job as finished."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.clients import Bench, ClientError, Workers, workers
from benchmarks.places import Place, PostgresPlace, Question
from benchmarks.plan import Plan
from benchmarks.systems import Settings, System
from benchmarks.usage import Usage, cpu

COSTS = (
    "client_cpu_us",
    "server_cpu_us",
    "wal_bytes",
    "wal_full_page_bytes",
    "commits",
    "statements_logged",
)
_POLL_SECONDS = 0.01
_SETTLE_POLL_SECONDS = 0.004


def drain(
    bench: Bench,
    plan: Plan,
    system: System,
    place: Place,
    settings: Settings,
    jobs: int,
    processes: int,
    full: bool = False,
) -> dict[str, Any]:
    """Drain `jobs` waiting jobs; return the rate, and the cost per job for the clients and the server."""
    query = system.unsettled_when_full if full and system.unsettled_when_full else system.unsettled
    before = place.counters() if isinstance(place, PostgresPlace) else None
    with place.asking(query) as unsettled:
        unsettled.ask()  # the first query is slow: the server has to plan it
        with workers(bench, system, place, settings, processes) as running:
            first_seen, usage_first = _wait_for_start(plan, running, place)
            began = time.monotonic()
            finished = _wait_for_handlers(plan, running, jobs)
            end_ns = _wait_until_settled(plan, unsettled) if finished else time.monotonic_ns()
            used = cpu(running.pids, place.server_pid) - usage_first
            seconds = time.monotonic() - began
            done = running.record.read()
            busy = place.counters() if isinstance(place, PostgresPlace) else None
    result = _rates(running.record.starts(), processes, end_ns, finished)
    result |= _cpu_per_job(used, seconds, done - first_seen)
    if isinstance(place, PostgresPlace) and before and busy:
        full_pages = place.full_page_bytes(before, busy)
        result["wal_bytes"] = (busy.wal_bytes - before.wal_bytes) / done
        result["wal_full_page_bytes"] = None if full_pages is None else full_pages / done
        result["commits"] = (place.counters().commits - before.commits - unsettled.calls) / done
        result["statements_logged"] = place.statements(before, busy) / done
    return result


def _wait_for_start(plan: Plan, running: Workers, place: Place) -> tuple[int, Usage]:
    end = time.monotonic() + plan.start_seconds_max
    while time.monotonic() < end:
        seen = running.record.read()
        if seen:
            return seen, cpu(running.pids, place.server_pid)
        running.check()
        time.sleep(_POLL_SECONDS)
    raise ClientError(f"no job started: {running.log.read_text(errors='replace').strip()[-1500:]}")


def _wait_for_handlers(plan: Plan, running: Workers, jobs: int) -> bool:
    """Return whether all handlers ran within the time limit of the drain."""
    end = time.monotonic() + plan.drain_seconds_max
    while time.monotonic() < end:
        if running.record.read() >= jobs:
            return True
        running.check()
        time.sleep(_POLL_SECONDS)
    return False


def _wait_until_settled(plan: Plan, unsettled: Question) -> int:
    end = time.monotonic() + plan.settle_seconds_max
    while time.monotonic() < end:
        asked = time.monotonic_ns()  # the result describes this moment, however long the query takes on a busy server
        if not unsettled.ask():
            return asked
        time.sleep(_SETTLE_POLL_SECONDS)
    raise ClientError("all jobs ran, but not all were acknowledged in the store")


def _rates(starts: list[tuple[int, int, int]], processes: int, end_ns: int, finished: bool) -> dict[str, Any]:
    """Return the jobs per second from when all processes run jobs until the end."""
    first_of: dict[int, int] = {}
    for at, _, process in starts:
        first_of.setdefault(process, at)
    firsts = sorted(first_of.values())
    start = firsts[min(processes, len(firsts)) - 1]
    counted = [at for at, _, _ in starts if start <= at <= end_ns]
    return {
        "rate": len(counted) / max(end_ns - start, 1) * 1e9,
        "handler_rate": len(counted) / max(counted[-1] - start, 1) * 1e9 if finished else None,
        "settled_after_ms": (end_ns - starts[-1][0]) / 1e6 if finished else None,
        "jobs": len(starts),
        "capped": not finished,
        "duplicates": len(starts) - len({number for _, number, _ in starts}),
        "processes_at_work": len(firsts),
    }


def _cpu_per_job(used: Usage, seconds: float, jobs: int) -> dict[str, Any]:
    return {
        "client_cpu_us": used.client / 1e3 / max(jobs, 1),
        "server_cpu_us": used.server / 1e3 / max(jobs, 1),
        "other_cores": max(0.0, used.others / 1e9 / max(seconds, 1e-3)),
    }

"""The bars of the job engine. Each bar is a limit for a figure, or for a ratio of figures of the same run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Summary = dict[str, dict[str, dict[str, Any]]]  # system -> workload -> medians

ROWLOCK = "rowlock"
ROWLOCK_SQLITE = "rowlock-sqlite"
ROWLOCK_MONGO = "rowlock-mongo"
_POSTGRESQL_PEERS = ("procrastinate", "pgqueuer", "awa-pg", "graphile-worker", "pg-boss")


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    limit: float
    at_least: bool
    unit: str
    value: Callable[[Summary], float | None]

    def judge(self, summary: Summary) -> dict[str, Any]:
        value = self.value(summary)
        wanted = f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}"
        if value is None:
            return {"bar": self.name, "wanted": wanted, "value": None, "verdict": "not measured"}
        passed = value >= self.limit if self.at_least else value <= self.limit
        shown = f"{value:.3g}{self.unit}" if value < 100 else f"{value:,.0f}{self.unit}"
        return {
            "bar": self.name,
            "wanted": wanted,
            "value": value,
            "shown": shown,
            "verdict": "pass" if passed else "FAIL",
        }


def judge(summary: Summary, bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """Return every bar with its value, and whether it passed, failed or was not measured."""
    return [bar.judge(summary) for bar in bars]


def figure(system: str, workload: str, key: str = "rate") -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        found = summary.get(system, {}).get(workload, {}).get(key)
        return None if found is None else float(found)

    return value


def _best(systems: tuple[str, ...], workload: str) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        found = [figure(system, workload)(summary) for system in systems]
        return max((each for each in found if each is not None), default=None)

    return value


def ratio(
    over: Callable[[Summary], float | None], under: Callable[[Summary], float | None]
) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        above, below = over(summary), under(summary)
        return above / below if above is not None and below else None

    return value


def _cost(
    slower: Callable[[Summary], float | None], faster: Callable[[Summary], float | None]
) -> Callable[[Summary], float | None]:
    """Return a function: by how many percent the first figure is lower than the second."""

    def value(summary: Summary) -> float | None:
        share = ratio(slower, faster)(summary)
        return None if share is None else (1 - share) * 100

    return value


def _ran_twice(summary: Summary) -> float | None:
    found = [
        entry["duplicates"]
        for name in (ROWLOCK, ROWLOCK_SQLITE, ROWLOCK_MONGO)
        for entry in summary.get(name, {}).values()
        if "duplicates" in entry
    ]
    return float(sum(found)) if found else None


_drain = figure(ROWLOCK, "drain")
_nodes = ("graphile-worker", "pg-boss")

BARS: tuple[Bar, ...] = (
    Bar(
        "one process, default settings ÷ pgqueuer at its best",
        3,
        True,
        "x",
        ratio(_drain, figure("pgqueuer", "drain")),
    ),
    Bar(
        "one process, default settings ÷ the best of graphile-worker and pg-boss",
        1.2,
        True,
        "x",
        ratio(_drain, _best(_nodes, "drain")),
    ),
    Bar(
        "batch handler ÷ pg-boss's",
        1.5,
        True,
        "x",
        ratio(figure(ROWLOCK, "batch"), figure("pg-boss", "batch")),
    ),
    Bar("two processes ÷ one, default settings", 1.2, True, "x", ratio(figure(ROWLOCK, "drain-2"), _drain)),
    Bar(
        "bulk enqueue ÷ the best peer on PostgreSQL",
        2,
        True,
        "x",
        ratio(figure(ROWLOCK, "bulk"), _best(_POSTGRESQL_PEERS, "bulk")),
    ),
    Bar("latency p50", 4, False, " ms", figure(ROWLOCK, "latency", "p50_ms")),
    Bar("latency p99", 12, False, " ms", figure(ROWLOCK, "latency", "p99_ms")),
    Bar(
        "cost of waiting and finished jobs in the store",
        15,
        False,
        " %",
        _cost(figure(ROWLOCK, "deep"), _drain),
    ),
    Bar(
        "cost of an old transaction, on the same store",
        50,
        False,
        " %",
        _cost(figure(ROWLOCK, "deep-old"), figure(ROWLOCK, "deep")),
    ),
    Bar("WAL bytes per job, page images included", 700, False, "", figure(ROWLOCK, "drain", "wal_bytes")),
    Bar("commits per job", 0.02, False, "", figure(ROWLOCK, "drain", "commits")),
    Bar("client CPU per job", 20, False, " µs", figure(ROWLOCK, "drain", "client_cpu_us")),
    Bar(
        "SQLite, synchronous=FULL, one process, default settings ÷ huey at its best",
        10,
        True,
        "x",
        ratio(figure(ROWLOCK_SQLITE, "drain"), figure("huey", "drain")),
    ),
    Bar(
        "MongoDB, one process, default settings ÷ one find_one_and_update after the other",
        5,
        True,
        "x",
        ratio(figure(ROWLOCK_MONGO, "drain"), figure("find-one-and-update", "drain")),
    ),
    Bar("MongoDB, latency p50", 10, False, " ms", figure(ROWLOCK_MONGO, "latency", "p50_ms")),
    Bar(
        "MongoDB, cost of waiting and finished jobs in the store",
        20,
        False,
        " %",
        _cost(figure(ROWLOCK_MONGO, "deep"), figure(ROWLOCK_MONGO, "drain")),
    ),
    Bar("enqueued over HTTP, requests a second", 1_500, True, "", figure(ROWLOCK, "http")),
    Bar("the same, p99", 50, False, " ms", figure(ROWLOCK, "http", "p99_ms")),
    Bar("health of a full store, median", 50, False, " ms", figure(ROWLOCK, "health", "median_ms")),
    Bar("the same on MongoDB", 50, False, " ms", figure(ROWLOCK_MONGO, "health", "median_ms")),
    Bar("the same on SQLite", 50, False, " ms", figure(ROWLOCK_SQLITE, "health", "median_ms")),
    Bar(
        "the overview of a full store, first byte, median", 100, False, " ms", figure(ROWLOCK, "pages", "first_byte_ms")
    ),
    Bar("the same on SQLite", 100, False, " ms", figure(ROWLOCK_SQLITE, "pages", "first_byte_ms")),
    Bar("its weight, nothing cached", 100, False, " kB", figure(ROWLOCK, "pages", "weight_kb")),
    Bar("statements of 50 open pages ÷ of one", 1.1, False, "x", figure(ROWLOCK, "pages", "open_share")),
    Bar("jobs that Rowlock ran twice in any drain", 0, False, "", _ran_twice),
)

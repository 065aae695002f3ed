"""The sizes of a full run and of a quick one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    repeat: int = 3
    enqueued_one_by_one: int = 2_000
    enqueued_in_bulk: int = 20_000
    enqueued_concurrently: int = 5_000
    enqueuers: int = 50
    drained: int = 20_000
    drain_seconds_max: float = 6.0
    start_seconds_max: float = 40.0
    settle_seconds_max: float = 15.0
    latency_jobs: int = 200
    latency_per_second: int = 20
    filled: int = 500_000
    idle_seconds: float = 30.0
    http_requests: int = 8_000
    http_connections: int = 32
    health_jobs: int = 1_000_000  # and as many failures
    health_asked: int = 101
    pages_asked: int = 21
    pages_open: int = 50
    pages_open_seconds: int = 20
    import_rows: int = 1_000_000
    import_small_rows: int = 100_000  # for workbooks, and for peers that would take minutes
    import_huge_rows: int = 10_000_000  # for memory alone; 0: not at all
    import_latency_files: int = 20
    import_seconds_max: float = 1_800.0
    sync_updates: int = 10_000
    sync_seconds_max: float = 120.0


FULL = Plan()
QUICK = Plan(
    repeat=1,
    enqueued_one_by_one=500,
    enqueued_concurrently=1_500,
    drain_seconds_max=3.0,
    latency_jobs=60,
    filled=50_000,
    idle_seconds=10.0,
    http_requests=4_000,
    health_jobs=100_000,
    pages_asked=5,
    pages_open_seconds=10,
    import_rows=100_000,
    import_small_rows=20_000,
    import_huge_rows=0,
    import_latency_files=5,
    sync_updates=5_000,
)

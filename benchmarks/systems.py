"""The measured systems: the settings of each at its defaults and at its best, and the query that shows unfinished jobs.

`unsettled` returns whether the store has a measured job that is not yet recorded as finished; the jobs that only
fill the store have another priority and are excluded. It is cheap, so that it does not slow down the drain.
On MongoDB it is a list of filters for documents of `jobs`.
Settings have the system's own names (see its adapter). The best were found by short drains; better ones may exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Settings = Mapping[str, Any]


class Store(StrEnum):
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"
    MONGODB = "mongodb"


class Runtime(StrEnum):
    ROWLOCK = "rowlock"  # the interpreter that runs the benchmark
    PEERS = "peers"  # a virtual environment with the Python peers
    NODE = "node"


@dataclass(frozen=True, slots=True)
class System:
    name: str
    store: Store
    runtime: Runtime
    adapter: str
    package: str
    unsettled: str
    unsettled_when_full: str | None = None  # if the query above would read a million rows
    default: Settings = field(default_factory=dict)
    best: Settings = field(default_factory=dict)
    latency: Settings | None = None  # if the best for throughput is not the best for latency
    batch: Settings | None = None  # for systems with handlers that take many jobs in one call
    supervised: bool = False  # one command starts all worker processes
    fills: bool = True
    note: str = ""

    @property
    def judged_settings(self) -> Settings:
        """Rowlock is judged at its defaults, every other system at its best."""
        return self.default if self.runtime is Runtime.ROWLOCK else self.best

    @property
    def other_settings(self) -> Settings:
        return self.best if self.runtime is Runtime.ROWLOCK else self.default

    @property
    def latency_settings(self) -> Settings:
        return self.best if self.latency is None else self.latency


_ROWLOCK_BEST: Settings = {
    "environment": {"ROWLOCK_BUFFER_MAX": "6000", "ROWLOCK_SETTLE_MAX": "6000"},
}

_PG_BOSS_BEST: Settings = {
    "batchSize": 2000,
    "localConcurrency": 2,
    "pollingIntervalSeconds": 0.5,
    "burstWhenBatchFull": True,
    "notify": True,
}

SYSTEMS: tuple[System, ...] = (
    System(
        name="rowlock",
        store=Store.POSTGRESQL,
        runtime=Runtime.ROWLOCK,
        adapter="rowlock_peer",
        package="rowlock",
        unsettled="""SELECT
            EXISTS (SELECT FROM rowlock.ready WHERE queue = 'default' AND limit_key IS NULL AND priority = 100)
            OR EXISTS (SELECT FROM rowlock.delayed)
            OR EXISTS (SELECT FROM rowlock.running r CROSS JOIN LATERAL
                (SELECT priority FROM rowlock.jobs j WHERE j.id = r.job_id OFFSET 0) j WHERE j.priority = 100)""",
        best=_ROWLOCK_BEST,
        latency={},
        batch={"batch": True},
        supervised=True,
        note="logged at its default level; a supervisor process beside the workers, its CPU counted",
    ),
    System(
        name="procrastinate",
        store=Store.POSTGRESQL,
        runtime=Runtime.PEERS,
        adapter="procrastinate_peer",
        package="procrastinate",
        unsettled="""SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo' AND priority = 0)
            OR EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'doing' AND priority = 0)""",
        best={"concurrency": 4, "connections": 4, "uvloop": True},
    ),
    System(
        name="pgqueuer",
        store=Store.POSTGRESQL,
        runtime=Runtime.PEERS,
        adapter="pgqueuer_peer",
        package="pgqueuer",
        unsettled="""SELECT EXISTS (SELECT FROM pgqueuer WHERE status = 'queued' AND priority = 0)
            OR EXISTS (SELECT FROM pgqueuer WHERE status = 'picked' AND priority = 0)""",
        best={"batch": 200, "uvloop": True},
    ),
    System(
        name="awa-pg",
        store=Store.POSTGRESQL,
        runtime=Runtime.PEERS,
        adapter="awa_peer",
        package="awa-pg",
        unsettled="""SELECT
            (SELECT coalesce(sum(claimed_count), 0) FROM awa.ready_claim_attempt_batches WHERE priority = 2)
            > (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches WHERE priority = 2)""",
        best={"queue": {"max_workers": 500, "priority_aging_interval_ms": 86_400_000}, "uvloop": True},
        latency={"uvloop": True},
    ),
    System(
        name="graphile-worker",
        store=Store.POSTGRESQL,
        runtime=Runtime.NODE,
        adapter="graphile_worker_peer",
        package="graphile-worker",
        unsettled="""SELECT EXISTS (SELECT FROM graphile_worker._private_jobs
            WHERE id > (SELECT coalesce(max(id), 0) FROM graphile_worker._private_jobs WHERE priority = 10))""",
        best={"concurrentJobs": 200, "maxPoolSize": 10, "localQueue": {"size": 2000}, "completeJobBatchDelay": 10},
        latency={"concurrentJobs": 10, "maxPoolSize": 12},
        note="deletes finished jobs",
    ),
    System(
        name="pg-boss",
        store=Store.POSTGRESQL,
        runtime=Runtime.NODE,
        adapter="pg_boss_peer",
        package="pg-boss",
        unsettled="SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed' AND priority = 0)",
        unsettled_when_full="""SELECT EXISTS (SELECT FROM pgboss.job
            WHERE name = 'bench' AND state < 'active' AND NOT blocked AND priority = 0)""",
        best=_PG_BOSS_BEST,
        batch=_PG_BOSS_BEST,
        note="its handler always takes an array; on a full store the last batch's acknowledgement is not waited for",
    ),
    System(
        name="rowlock-sqlite",
        store=Store.SQLITE,
        runtime=Runtime.ROWLOCK,
        adapter="rowlock_peer",
        package="rowlock",
        unsettled="""SELECT
            EXISTS (SELECT 1 FROM ready WHERE queue = 'default' AND limit_key = '' AND priority = 100)
            OR EXISTS (SELECT 1 FROM delayed)
            OR EXISTS (SELECT 1 FROM running r CROSS JOIN jobs j ON j.id = r.job_id WHERE j.priority = 100)""",
        best=_ROWLOCK_BEST,
        latency={},
        batch={"batch": True},
        supervised=True,
        note="synchronous=FULL, its default",
    ),
    System(
        name="huey",
        store=Store.SQLITE,
        runtime=Runtime.PEERS,
        adapter="huey_peer",
        package="huey",
        unsettled="SELECT EXISTS (SELECT 1 FROM task WHERE queue = 'bench' AND priority = 0)",
        best={"workers": 2, "worker-type": "process", "delay": 0.005, "max-delay": 0.02, "quiet": True},
        note="synchronous=FULL, its default; takes a job by deleting it, so a crash loses it",
    ),
    System(
        name="litequeue",
        store=Store.SQLITE,
        runtime=Runtime.PEERS,
        adapter="litequeue_peer",
        package="litequeue",
        unsettled="SELECT EXISTS (SELECT 1 FROM Queue WHERE status < 2)",
        best={"poll_seconds": 0.005},
        fills=False,
        note="no worker of its own, synchronous=NORMAL; no priorities, so nothing can be put behind",
    ),
    System(
        name="rowlock-mongo",
        store=Store.MONGODB,
        runtime=Runtime.ROWLOCK,
        adapter="rowlock_peer",
        package="rowlock",
        unsettled="""[{"queue": "default", "state": "ready", "limitKey": "", "priority": 100},
            {"queue": "default", "state": "delayed"}, {"owner": {"$gt": ""}, "state": "running", "priority": 100}]""",
        best=_ROWLOCK_BEST,
        latency={},
        batch={"batch": True},
        supervised=True,
        note="a replica set of one; w=majority, j=true, its default",
    ),
    System(
        name="find-one-and-update",
        store=Store.MONGODB,
        runtime=Runtime.ROWLOCK,
        adapter="mongo_loop_peer",
        package="pymongo",
        unsettled="""[{"status": "queued", "createdAt": {"$lt": {"$date": "9000-01-01T00:00:00Z"}}},
            {"status": "processing"}]""",
        note="the loop that people write, one job at a time; w=majority, j=true",
    ),
)

"""The sync under attack: workers die, the service fails in every way, and ends in the state of one patient caller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from faults.conftest import migrate
from faults.databases import Database, MongoDatabase, PostgresDatabase
from faults.processes import Fleet, Tree
from faults.syncing import CALLS, Syncing, Workload, judge
from faults.until import after, until
from mongo_server import MongoServer
from postgres_server import PostgresServer
from sync.standin import StandIn
from sync.standin.trouble import MIX

REFUSALS = 8  # calls whose token the service refuses
KINDS = MIX | {"429": 0.7, "429_after": 1.0, "named_limit": 0.7}  # each of these makes the whole fleet rest


def kill_some(trees: list[Tree], rng: random.Random, kills: int) -> int:
    """Kill worker processes at random moments."""
    killed = 0
    for _ in range(kills):
        until(after(rng.uniform(0.3, 1.2)), 2)
        pids = [(tree, pid) for tree in trees for pid in tree.workers()]
        if pids:
            tree, pid = rng.choice(pids)
            tree.kill_worker(pid)
            killed += 1
    return killed


def leaks(fleet: Fleet, database: Database, secret: str) -> list[str]:
    """Return the logs and database tables that contain the secret."""
    found = [str(tree.log.name) for tree in fleet.trees if secret in tree.log.read_text(errors="replace")]
    return found + database.mentions(secret)


@pytest.mark.parametrize(
    ("operations", "kills"),
    [
        pytest.param(72, 3, id="short", marks=[pytest.mark.timeout(240)]),
        pytest.param(10_000, 200, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_the_other_side_ends_as_one_patient_caller_would_have_left_it(
    database: Database,
    fleet: Fleet,
    standin: StandIn,
    seed: int,
    figure: Callable[[str], None],
    operations: int,
    kills: int,
) -> None:
    rng = random.Random(seed)
    workload = Workload(rng, people=operations // 4)
    trouble = {"share": 0.2, "kinds": KINDS, "latency_seconds": (0.0, 0.02), "hang_seconds": 1.5}
    trouble |= {"retry_after_seconds": 0.2, "seed": seed}
    standin.trouble(**trouble)
    standin.search_lag(1.0)
    with Syncing(database, standin) as syncing:

        def how() -> str:
            return f"{database.statuses()}\n{trees[0].tail()}"

        ids = syncing.put_all(workload, operations // 3)
        trees = [syncing.worker(fleet), syncing.worker(fleet)]
        killed = kill_some(trees, rng, kills // 3)
        ids += syncing.put_all(workload, operations // 3)
        killed += kill_some(trees, rng, kills // 3)
        standin.trouble(**trouble, scripts=[{"kind": "401", "times": REFUSALS}])
        trees[1].kill()
        trees[1] = syncing.worker(fleet)
        ids += syncing.put_all(workload, operations - len(ids))
        killed += kill_some(trees, rng, kills - 2 * (kills // 3)) + 1
        until(syncing.over, 60 + operations, how)
        judge(standin)
        jobs = syncing.jobs()
        assert jobs.keys() == set(ids)
        dead = {job.id: job.error for job in jobs.values() if job.status != "succeeded"}
        assert all(dead.values()), dead

        standin.trouble()
        retried = syncing.retry_dead()
        assert {*retried.retried, *retried.conflicts} >= dead.keys()  # and jobs that the integration enqueued itself
        until(syncing.over, 60 + operations, how)
        if retried.conflicts:  # of dead letters with the same key, one runs at a time
            assert set(syncing.retry_dead().retried) >= set(retried.conflicts)
            until(syncing.over, 60 + operations, how)
        bad = [job for job in syncing.jobs().values() if job.status != "succeeded"]
    assert leaks(fleet, database, standin.token) == []
    judged = judge(standin)
    failures = judged["trouble"]
    assert failures["401"] == REFUSALS
    figure(
        f"sync {database.kind}: {operations:,} operations, {killed} kills, {judged['calls']:,} calls, at most "
        f"{judged['windows'][0]['most']} of {CALLS} in a window, {sum(failures.values())} failures of "
        f"{len(failures)} kinds, {len(dead)} died and were retried, {len(bad)} bad"
    )
    assert len(bad) == workload.bad
    assert all("not one of the allowed options" in (job.error or "") for job in bad)
    assert workload.differences(standin.state()) == []


@dataclass
class Crashing:
    """A database on a separate server, to be crashed."""

    database: Database
    stop: Callable[[], None]
    start: Callable[[], None]


@pytest.fixture(params=["postgres", "mongo"])
def crashing(request: pytest.FixtureRequest) -> Iterator[Crashing]:
    if request.param == "postgres":
        with PostgresServer() as server:
            database = PostgresDatabase(server)
            migrate(database)
            yield Crashing(database, lambda: server.stop("immediate"), server.start)
        return
    with MongoServer() as servers:
        documents = MongoDatabase(servers)
        migrate(documents)
        yield Crashing(documents, servers.node.kill, servers.node.start)


@pytest.mark.parametrize(
    ("operations", "crashes"),
    [
        pytest.param(300, 3, id="some", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
        pytest.param(2_000, 12, id="long", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_nothing_is_there_twice_and_no_limit_is_broken_when_the_database_crashes(
    crashing: Crashing,
    fleet: Fleet,
    standin: StandIn,
    seed: int,
    figure: Callable[[str], None],
    operations: int,
    crashes: int,
) -> None:
    rng = random.Random(seed)
    workload = Workload(rng, people=operations // 4)
    standin.trouble(latency_seconds=(0.0, 0.1))
    with Syncing(crashing.database, standin) as syncing:
        syncing.put_all(workload, operations)
        tree = syncing.worker(fleet)
        for _ in range(crashes):
            calls = standin.judgement()["calls"]
            until(lambda: standin.judgement()["calls"] > calls + 20, 30, tree.tail)  # noqa: B023
            crashing.stop()
            until(after(rng.uniform(0.1, 1.0)), 2)
            crashing.start()
        until(syncing.over, operations, tree.tail)
        syncing.retry_dead()
        until(syncing.over, operations, tree.tail)
        bad = [job for job in syncing.jobs().values() if job.status != "succeeded"]
    judged = judge(standin)
    kind = crashing.database.kind
    figure(f"sync {kind}, {crashes} crashes of the database: {operations:,} operations, {judged['calls']:,} calls")
    assert len(bad) == workload.bad
    assert workload.differences(standin.state()) == []

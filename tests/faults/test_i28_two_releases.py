"""I28: two releases work side by side before, during and after the migration; no job fails, none is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from faults.databases import Database
from faults.processes import QUICK, Fleet, Tree
from faults.producer import Producer
from faults.releases import contracting_release, next_release
from faults.until import until
from rowlock.control import schedules, tokens
from rowlock.ids import uuid7
from rowlock.management import ManagementService
from rowlock.storage.contract import Store
from rowlock.storage.records import JobFilter, NewJob
from rowlock.storage.reliability import FailureFilter

PATIENCE_SECONDS = 60.0
LEASE = {**QUICK, "QUEUE_VISIBILITY_MS": "10000"}  # none is to be lost; one of 1 s would be, on a busy machine
NEXT_APP = "faults.next_app:app"
REFUSED = "upgrade this installation"
EXPECTED = {"worker.died", "worker.failed", "job.crashed", "job.released", "job.type_unknown"}


@pytest.fixture
def place(database: Database) -> Database:
    """A database of this test only, with this release's schema."""
    made = database.beside()
    with Producer(made) as producer:
        producer.app.blocking.migrate()
    return made


def ran_on(fleet: Fleet, trees: list[Tree]) -> list[int]:
    """Return how many jobs each tree has finished."""
    ended = [entry.pid for entry in fleet.journal.all("end")]
    return [sum(map(ended.count, tree.workers())) for tree in trees]


def each_runs_some(fleet: Fleet, place: Database, producer: Producer, trees: list[Tree]) -> list[str]:
    """Enqueue until every tree has run some more jobs. Returns the job ids."""
    put, before = list[str](), ran_on(fleet, trees)

    def all_did() -> bool:
        assert all(tree.alive for tree in trees), "\n".join(tree.tail() for tree in trees)
        done = all(now > then for now, then in zip(ran_on(fleet, trees), before, strict=True))
        if not done and place.ready() < 20:
            put.extend(producer.put("nap", 20, seconds=0.02) + producer.put("tick", 4) + producer.put("plain", 4))
            put.extend(producer.put("ends", how="retry") + producer.put("guarded"))
        return done

    until(all_did, PATIENCE_SECONDS, lambda: "\n".join(tree.tail() for tree in trees))
    on_the_store(producer, look)
    return put


async def look(store: Store) -> None:
    """Make the requests that a dashboard's server makes all the time."""
    page = await store.page(JobFilter(), 5)
    await asyncio.gather(store.get(page.jobs[0].id), store.queues(), store.totals(), store.workers())
    await asyncio.gather(
        store.failures(FailureFilter(), 5), schedules.listed(store), tokens.listed(store), store.history(60)
    )


def on_the_store(producer: Producer, verb: Callable[[Store], Awaitable[object]]) -> None:
    async def call() -> None:
        await verb(producer.app.store)

    producer.app.blocking.run(call())


def unserved(producer: Producer) -> set[str]:
    """Return job types that no live worker serves, according to the older release's health."""

    async def ask() -> set[str]:
        return {each.type for each in (await ManagementService(producer.app).health()).unserved_types}

    return producer.app.blocking.run(ask())


def complaints(trees: list[Tree]) -> list[object]:
    """Return logged problems that this attack does not explain; jobs of the type `ends` ask for retries."""
    told = [event for tree in trees for event in tree.events() if event.get("level") in ("warning", "error")]
    return [event for event in told if event["event"] not in EXPECTED and event.get("type") != "ends"]


def refused(tree: Tree) -> str:
    """Return the output of a process that refused to work."""
    assert tree.wait(PATIENCE_SECONDS) == 1, tree.tail()
    assert tree.events("worker.started") == []
    return tree.tail()


@pytest.mark.every_store
def test_a_release_works_beside_the_next_one_and_ends_with_the_one_after_it(
    place: Database, fleet: Fleet, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    following, last = next_release(tmp_path / "next"), contracting_release(tmp_path / "last")
    with Producer(place, LEASE) as producer:
        before = fleet.worker(place, **LEASE)
        put = each_runs_some(fleet, place, producer, [before])
        put += producer.put("nap", 40, seconds=0.02)
        assert "applied" in following.migrate(fleet, place), "the work goes on meanwhile"
        put += each_runs_some(fleet, place, producer, [before])
        before.stop()
        restarted = fleet.worker(place, **LEASE)
        put += each_runs_some(fleet, place, producer, [restarted])

        fresh = [NewJob(uuid7(), name, "{}") for name in ("fresh", "tock")]  # names of the next release
        on_the_store(producer, lambda store: store.enqueue(fresh))
        until(lambda: restarted.events("job.type_unknown"), PATIENCE_SECONDS, restarted.tail)
        assert unserved(producer) == {"fresh", "tock"}
        after = fleet.worker(place, app=NEXT_APP, **LEASE, **following.environment)
        put += each_runs_some(fleet, place, producer, [restarted, after])
        assert unserved(producer) == set(), "to the older release, too: the newer workers have them"

        assert "restart their workers" in last.migrate(fleet, place)
        restarted.kill_worker(restarted.workers()[0])
        (failed, *_) = until(lambda: restarted.events("worker.failed"), PATIENCE_SECONDS, restarted.tail)
        assert REFUSED in failed["reason"]
        assert REFUSED in refused(fleet.worker(place, ready=False))
        put += each_runs_some(fleet, place, producer, [after])
        restarted.stop()
        for job in fresh:
            on_the_store(producer, lambda store: store.run_now(job.id))  # noqa: B023 - called at once
        until(lambda: place.waiting() == 0, PATIENCE_SECONDS, after.tail)
    records = place.records()
    figure(f"I28 {place.kind}: {len(records)} jobs by two releases over two migrations, none dead, none lost")
    assert set(records) == {*put, *(job.id for job in fresh)}
    assert {record.status for record in records.values()} == {"succeeded"}
    assert {records[job.id].attempts for job in fresh} == {1}
    assert complaints([before, restarted, after]) == []


def test_the_attack_notices_that_a_release_wants_its_own_schema_only(
    place: Database, fleet: Fleet, tmp_path: Path
) -> None:
    next_release(tmp_path / "next").migrate(fleet, place)
    tree = fleet.worker(place, ready=False, FAULTS_MUTANT="own_schema_only")
    assert REFUSED in refused(tree)


def test_the_attack_notices_that_a_contracted_schema_is_not_refused(
    place: Database, fleet: Fleet, tmp_path: Path
) -> None:
    contracting_release(tmp_path / "last").migrate(fleet, place)
    fleet.worker(place, FAULTS_MUTANT="any_schema")  # starts to work

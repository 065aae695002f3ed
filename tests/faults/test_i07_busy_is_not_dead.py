"""I7: a live, busy job is never taken, even if its handler lets nothing else run in its process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import apsw
import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase, SqliteDatabase
from faults.processes import QUICK, Fleet
from faults.producer import Producer
from faults.proxy import proxy_of
from faults.until import after, until

LEASE_SECONDS = 2.0  # longer than a supervisor on a busy machine stands still
LEASES = 5
LEASE = {"QUEUE_VISIBILITY_MS": "2000"}
jobs = pytest.mark.parametrize(
    "number",
    [pytest.param(1, id="short"), pytest.param(40, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)


def put_holders(database: Database, number: int, seconds: float = LEASE_SECONDS * LEASES) -> list[str]:
    with Producer(database, {**QUICK, **LEASE}) as producer:
        return producer.put("hold", number, seconds=seconds)


@jobs
def test_a_handler_that_holds_the_interpreter_for_five_leases_keeps_its_job(
    database: Database, fleet: Fleet, number: int, figure: Callable[[str], None]
) -> None:
    held = put_holders(database, number)
    # Two trees: each would take the other's jobs if it could.
    trees = [fleet.worker(database, ready=False, concurrency=1, processes=1, **LEASE) for _ in range(2)]
    seconds = 60 + LEASE_SECONDS * LEASES * number
    until(lambda: database.waiting() == 0, seconds, lambda: trees[0].tail() + trees[1].tail())
    starts = fleet.journal.by_job("start")
    assert {job: len(starts[job]) for job in held} == dict.fromkeys(held, 1)
    assert {(job.status, job.attempts) for job in database.records().values()} == {("succeeded", 1)}
    figure(f"I7 {database.kind}: {number} jobs held the interpreter for {LEASES} leases, 0 second starts")


@contextmanager
def unavailable(database: Database, fleet: Fleet) -> Iterator[tuple[str, Callable[[], AbstractContextManager[None]]]]:
    """Return a URL, and a context manager that makes the database unavailable to all for the length of a block."""
    if isinstance(database, PostgresDatabase | MongoDatabase):
        with proxy_of(database) as proxy:

            @contextmanager
            def away() -> Iterator[None]:
                proxy.refusing = True
                proxy.cut()
                yield
                proxy.refusing = False

            yield database.through(proxy.port), away
        return
    assert isinstance(database, SqliteDatabase)
    path = str(database.path)

    @contextmanager
    def locked() -> Iterator[None]:
        with closing(apsw.Connection(path)) as connection:
            connection.set_busy_timeout(5_000)
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    yield database.url, locked


def test_a_live_job_is_not_taken_because_the_database_was_away(
    database: Database, fleet: Fleet, rng: random.Random
) -> None:
    """No lease could be renewed for longer than it lasts; the first tree back must not take the others' jobs."""
    with unavailable(database, fleet) as (url, away):
        with Producer(database, {**QUICK, **LEASE}) as producer:
            jobs = producer.put("nap", 8, seconds=LEASE_SECONDS * LEASES)
        trees = [fleet.worker(url, ready=False, concurrency=4, **LEASE) for _ in range(2)]
        until(lambda: len(fleet.journal.jobs("start")) == len(jobs), 60, lambda: trees[0].tail() + trees[1].tail())
        with away():
            until(after(LEASE_SECONDS * rng.uniform(1.5, 2.5)), 10)
        until(lambda: database.waiting() == 0, 60, lambda: trees[0].tail() + trees[1].tail())
    starts = fleet.journal.by_job("start")
    assert {job: len(starts[job]) for job in jobs} == dict.fromkeys(jobs, 1)


def test_the_attack_notices_a_heartbeat_inside_the_worker(database: Database, fleet: Fleet) -> None:
    """`app.work()` renews its own leases; this handler prevents that, and another worker takes the job."""
    seconds = 100.0  # longer than another worker needs to start, on any machine
    put_holders(database, 1, seconds)
    inline = fleet.start("faults.inline", database.url, **LEASE)
    until(lambda: fleet.journal.all("start"), 60, inline.tail)
    tree = fleet.worker(database, ready=False, **LEASE)
    until(lambda: len(fleet.journal.all("start")) == 2, seconds / 2, tree.tail)

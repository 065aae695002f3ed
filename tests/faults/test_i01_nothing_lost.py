"""I1: no job is lost once enqueue returned, while producers, workers and the database are killed all the time."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from faults.conftest import migrate
from faults.databases import Database, PostgresDatabase, SqliteDatabase
from faults.processes import Fleet
from faults.until import after, until, until_none_is_left
from postgres_server import PostgresServer

SHORT, LONG = 1, 40
STALL_SECONDS = 60.0
lengths = pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
Crash = Callable[[], None]


@pytest.fixture(scope="module")
def durable_server() -> Iterator[PostgresServer]:
    """A separate server, to be crashed."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def durable_database(durable_server: PostgresServer) -> PostgresDatabase:
    made = PostgresDatabase(durable_server)
    migrate(made)
    return made


def attack(fleet: Fleet, database: Database, rng: random.Random, rounds: int, crash: Crash | None = None) -> None:
    """Produce and work while each part is killed once per round, in random order. Leaves nothing running."""

    def produce() -> None:
        fleet.start("faults.producer", database.url, "1000000")

    def kill_producer() -> None:
        rng.choice([tree for tree in fleet.trees if tree.alive and tree not in workers]).kill()
        produce()

    def kill_worker() -> None:
        if pids := workers[-1].workers():
            workers[-1].kill_worker(rng.choice(pids))

    def kill_tree() -> None:
        workers[-1].kill()
        workers.append(fleet.worker(database, ready=False, processes=2))

    def more(what: str, than: int) -> bool:
        if crash and not workers[-1].alive and "is not available" in workers[-1].tail():  # it failed to start
            workers.append(fleet.worker(database, ready=False, processes=2))  # as a service manager does
        return len(fleet.journal.jobs(what)) > than

    workers = [fleet.worker(database, ready=False, processes=2)]
    for _ in range(2):
        produce()
    blows = [kill_producer, kill_worker, kill_tree, *([crash] if crash else [])]
    for _ in range(rounds):
        # Wait until jobs are enqueued and done again, so that everything has started before the next kill.
        for what in ("acknowledged", "end"):
            before = len(fleet.journal.jobs(what))
            until(partial(more, what, before), 60, workers[-1].tail)
        for blow in rng.sample(blows, len(blows)):
            until(after(rng.uniform(0.1, 0.4)), 1)
            blow()
    for tree in fleet.trees:
        tree.kill()


def lost(fleet: Fleet, database: Database, figure: Callable[[str], None]) -> set[str]:
    """Let healthy workers finish. Returns the acknowledged jobs that have not succeeded by then."""
    acknowledged = fleet.journal.jobs("acknowledged")
    fleet.worker(database, ready=False, processes=2)
    until_none_is_left(database.waiting, STALL_SECONDS, database.statuses)
    ended = fleet.journal.jobs("end")
    succeeded = {job.id for job in database.records("succeeded").values()}
    assert succeeded <= ended, "a job counts as succeeded though no handler came to its end"
    figure(f"I1 {database.kind}: {len(acknowledged):,} acknowledged, {len(acknowledged - succeeded)} lost")
    return acknowledged - succeeded


@lengths
def test_no_job_is_lost_when_producers_and_workers_are_killed(
    sqlite_database: SqliteDatabase, fleet: Fleet, rng: random.Random, rounds: int, figure: Callable[[str], None]
) -> None:
    attack(fleet, sqlite_database, rng, rounds)
    assert lost(fleet, sqlite_database, figure) == set()


@lengths
def test_no_job_is_lost_when_the_database_crashes_too(
    durable_database: PostgresDatabase, fleet: Fleet, rng: random.Random, rounds: int, figure: Callable[[str], None]
) -> None:
    attack(fleet, durable_database, rng, rounds, lambda: durable_database.server.restart("immediate"))
    assert lost(fleet, durable_database, figure) == set()


def test_the_attack_notices_an_answer_before_the_commit(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    producer = fleet.start("faults.producer", database.url, "1000000", FAULTS_MUTANT="early_ack")
    until(lambda: len(fleet.journal.jobs("acknowledged")) > 20, 60, producer.tail)
    producer.kill()
    assert lost(fleet, database, figure)


def test_the_attack_notices_a_server_that_does_not_wait_for_its_disk(
    durable_database: PostgresDatabase, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    durable_database.run(f"ALTER DATABASE {durable_database.name} SET synchronous_commit = off")
    # The server's own process that would write the log within 0.2 s; to kill it crashes the server.
    ((log_writer,),) = durable_database.rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    os.kill(log_writer, signal.SIGSTOP)
    producer = fleet.start("faults.producer", durable_database.url, "1000000")
    until(lambda: len(fleet.journal.jobs("acknowledged")) > 20, 60, producer.tail)
    os.kill(log_writer, signal.SIGKILL)
    durable_database.server.restart("immediate")
    producer.kill()
    assert lost(fleet, durable_database, figure)

"""I24: an infrastructure error costs no attempt and changes no outcome, whatever error the store raises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase
from faults.processes import LONG_LEASE, Fleet, Tree
from faults.producer import Producer
from faults.until import after, until, until_none_is_left

ENDS = {
    "succeed": ("succeeded", 1, None),
    "fail": ("failed", 1, "as asked"),
    "retry": ("succeeded", 2, None),
    "snooze": ("succeeded", 1, None),
}
"""Status, attempts and error of a job whose handler was asked to end like this."""
FINAL = ("succeeded", "failed", "cancelled")
APP_NAME = "rowlock-attacked"
SQLSTATES = ("57014", "55P03", "53200", "40001", "XX000", "58030")
MONGO_CODES = (11601, 262, 112, 146, 24, 8)
WAITING_MAX = 600
VERBS = ("DELETE ON rowlock.running", "INSERT ON rowlock.finished", "INSERT ON rowlock.delayed")


@contextmanager
def postgres_errors(database: PostgresDatabase, share: float, tree: Tree) -> Iterator[Callable[[], bool]]:
    """Make this share of settlement statements fail with some SQLSTATE. Yields whether one has."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        raised = " ".join(f"WHEN {place} THEN '{code}'" for place, code in enumerate(SQLSTATES))
        connection.execute(
            "CREATE FUNCTION public.sabotage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF random() < {share} THEN"
            f" RAISE EXCEPTION 'no' USING ERRCODE = CASE (random() * 100)::integer % {len(SQLSTATES)} {raised} END;"
            " END IF; RETURN NULL; END $$"
        )
        for place, verb in enumerate(VERBS):
            connection.execute(
                f"CREATE TRIGGER sabotage_{place} AFTER {verb} FOR EACH STATEMENT EXECUTE FUNCTION public.sabotage()"
            )
        yield lambda: bool(tree.events("settle.delayed"))
        # Not dropped: that locks the tables, and deadlocks with workers that lock them in another order.
        connection.execute(
            "CREATE OR REPLACE FUNCTION public.sabotage() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN NULL; END $$"
        )


@contextmanager
def mongo_errors(database: MongoDatabase, rng: random.Random) -> Iterator[Callable[[], bool]]:
    """Make six of ten updates of settlements fail with some error code. Yields whether one has."""
    code = rng.choice(MONGO_CODES)
    data = {"failCommands": ["update"], "errorCode": code, "appName": APP_NAME}
    command = {"configureFailPoint": "failCommand", "data": data}
    print(f"MongoDB answers {code}")
    share = {"mode": {"activationProbability": 0.6}}
    hits = 0

    def hit() -> bool:
        nonlocal hits  # a conflict is retried without a log
        hits += database.server.client.admin.command(command | share)["count"]
        return hits > 0

    database.server.client.admin.command(command | share)
    try:
        yield hit
    finally:
        database.server.client.admin.command(command | {"mode": "off"})


def attack(
    fleet: Fleet, database: PostgresDatabase | MongoDatabase, rng: random.Random, seconds: float, mutant: str = ""
) -> list[str]:
    """Return the jobs that ended differently from their handler. With a mutant, stop at the first one."""
    mongo = isinstance(database, MongoDatabase)
    url = f"{database.url}{'&' if '?' in database.url else '?'}appName={APP_NAME}" if mongo else database.url
    # Small batches: large ones would absorb most errors, since their halves go through. A mutant gets single jobs.
    small = {"ROWLOCK_SETTLE_MAX": "1" if mutant else "8"}
    tree = fleet.worker(url, processes=2, ready=False, FAULTS_MUTANT=mutant, **small, **LONG_LEASE)
    wanted: dict[str, str] = {}
    with Producer(database, LONG_LEASE) as producer:

        def put() -> None:
            how = rng.choice(list(ENDS))
            wanted.update(dict.fromkeys(producer.put("ends", rng.randrange(1, 40), how=how), how))

        put()
        until(lambda: fleet.journal.all("end") or fleet.journal.all("stopped"), 60, tree.tail)
        # A mutant retries a refused settlement: with fewer errors the changed one gets through.
        share = 0.25 if mutant else 0.6
        errors = (
            mongo_errors(database, rng)
            if isinstance(database, MongoDatabase)
            else postgres_errors(database, share, tree)
        )
        with errors as hit:
            over, patience = after(seconds), after(seconds + 60)
            while not (mutant and otherwise(database, wanted)) and not (over() and hit()):
                assert not patience(), "the attack hits nothing"
                if database.waiting() < WAITING_MAX:  # or a slow machine would have them all left at the end
                    put()
                until(after(0.1), 1)
        until_none_is_left(database.waiting, 60, tree.tail)
    return otherwise(database, wanted)


def otherwise(database: Database, wanted: dict[str, str]) -> list[str]:
    """Return the finished jobs that did not end as asked."""
    return [
        f"{how}: {record.status} after {record.attempts} attempts: {record.error}"
        for job_id, record in database.records().items()
        for how in [wanted[job_id]]
        if record.status in FINAL and (record.status, record.attempts, record.error) != ENDS[how]
    ]


@pytest.mark.parametrize("seconds", [pytest.param(3, id="short"), pytest.param(60, id="long", marks=pytest.mark.long)])
@pytest.mark.every_store
def test_every_job_ends_as_its_handler_said(
    remote: PostgresDatabase | MongoDatabase,
    fleet: Fleet,
    rng: random.Random,
    seconds: float,
    figure: Callable[[str], None],
) -> None:
    wrong = attack(fleet, remote, rng, seconds)
    figure(f"I24 {remote.kind}: {len(fleet.journal.jobs('start')):,} jobs, {len(wrong)} false endings")
    assert wrong == []
    runs = {job: len(entries) for job, entries in fleet.journal.by_job("start").items()}
    assert max(runs.values()) <= 2, "some job ran again for an error of the store"


def test_the_attack_notices_an_error_that_is_taken_for_the_fault_of_a_value(
    postgres_database: PostgresDatabase, fleet: Fleet, rng: random.Random
) -> None:
    wrong = attack(fleet, postgres_database, rng, 30, mutant="errors_are_values")
    assert wrong, fleet.trees[0].tail()

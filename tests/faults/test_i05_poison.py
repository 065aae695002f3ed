"""I5: attempts never exceed their maximum, crashes included; a poison job becomes a dead letter, starving no other."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from faults.databases import Database, PostgresDatabase
from faults.processes import LONG_LEASE, QUICK, Fleet, Tree
from faults.producer import Producer
from faults.until import until

DEATHS_MAX = 2
KINDS = ("exit", "segfault", "kill", "memory")
QUICK_KINDS = {
    "sqlite": ("exit", "kill"),
    "postgres": ("segfault",),
    "mongo": ("memory",),
}  # a kind of death does not depend on the store: one each is enough
copies = pytest.mark.parametrize(
    "copies",
    [pytest.param(1, id="short"), pytest.param(8, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)


def drained(database: Database, seconds: float, tree: Tree) -> None:
    until(lambda: database.waiting() == 0, seconds, lambda: f"drained: {database.statuses()}\n{tree.tail()}")


@pytest.mark.every_store
@copies
def test_a_poison_job_ends_dead_after_exactly_its_deaths_and_good_jobs_are_unharmed(
    database: Database, fleet: Fleet, copies: int, figure: Callable[[str], None]
) -> None:
    with Producer(database, LONG_LEASE) as producer:
        kinds = KINDS if copies > 1 else QUICK_KINDS[database.kind]
        poison = [job for how in kinds for job in producer.put("die", copies, how=how)]
        good = producer.put("nap", 40 * copies, seconds=0.02)
    tree = fleet.worker(
        database,
        ready=False,
        processes=2,
        concurrency=1,
        ROWLOCK_DEATHS_MAX=str(DEATHS_MAX),
        QUEUE_MAX_ATTEMPTS="5",
        **LONG_LEASE,
    )
    drained(database, 60 * (1 + copies), tree)
    records, starts = database.records(), fleet.journal.by_job("start")
    for job in poison:
        found = records[job]
        assert (found.status, found.attempts, found.deaths) == ("failed", DEATHS_MAX, DEATHS_MAX)
        assert len(starts[job]) == DEATHS_MAX
        assert "quarantined" in str(found.error)
    ends = fleet.journal.by_job("end")
    for job in good:
        assert (records[job].status, records[job].attempts) == ("succeeded", 1)
        # A job runs again only if it ended and its process died before the settlement.
        assert len(starts[job]) == len(ends[job])
    figure(f"I5 {database.kind}: {len(poison)} poison jobs, {DEATHS_MAX} starts each; {len(good)} good ones unharmed")


def test_attempts_end_at_their_maximum_also_by_deaths(database: Database, fleet: Fleet) -> None:
    with Producer(database, LONG_LEASE) as producer:
        (job,) = producer.put("die", how="kill", options={"max_attempts": 2})
    tree = fleet.worker(database, ready=False, concurrency=1, ROWLOCK_DEATHS_MAX="10", **LONG_LEASE)
    drained(database, 60, tree)
    found = database.records()[job]
    assert (found.status, found.attempts, len(fleet.journal.all("start"))) == ("failed", 2, 2)
    assert "quarantined" not in str(found.error)


def test_a_good_job_is_not_condemned_for_its_neighbours(database: Database, fleet: Fleet) -> None:
    """Poison and good jobs run in the same process, so every death has several suspects."""
    with Producer(database, LONG_LEASE) as producer:
        (good,) = producer.put("nap", seconds=0.5)
        poison = producer.put("die", 3, how="kill")
    tree = fleet.worker(database, ready=False, concurrency=4, ROWLOCK_DEATHS_MAX=str(DEATHS_MAX), **LONG_LEASE)
    drained(database, 60, tree)
    records = database.records()
    assert [records[job].status for job in poison] == ["failed"] * 3
    assert records[good].status == "succeeded", records[good].error


def test_a_long_job_under_suspicion_does_not_keep_the_others_waiting(sqlite_database: Database, fleet: Fleet) -> None:
    """A good 10-minute job whose process was killed from outside until one more death would quarantine it."""
    with Producer(sqlite_database, LONG_LEASE) as producer:
        (long, _) = producer.put("nap", 2, seconds=600)
        tree = fleet.worker(sqlite_database, ready=False, ROWLOCK_DEATHS_MAX=str(DEATHS_MAX), **LONG_LEASE)
        for starts in range(1, DEATHS_MAX + 1):
            until(lambda: len(fleet.journal.by_job("start")[long]) == starts, 60, tree.tail)  # noqa: B023
            if starts < DEATHS_MAX:
                tree.kill_worker(fleet.journal.by_job("start")[long][-1].pid)
        quick = set(producer.put("nap", 20))
        until(lambda: quick <= fleet.journal.jobs("end"), 60, tree.tail)  # the long one takes 600 s


MAX_ATTEMPTS = 2


def kill_whole_trees(database: Database, fleet: Fleet, mutant: str = "") -> tuple[str, int]:
    """Run a job that kills the whole tree among good ones, restarting workers until all jobs have ended."""
    with Producer(database, {**QUICK, "QUEUE_VISIBILITY_MS": "800"}) as producer:
        (poison,) = producer.put("die", how="tree", options={"max_attempts": MAX_ATTEMPTS, "queue": "aside"})
        producer.put("nap", 20, seconds=0.02)
    starts = 0
    while database.waiting() and starts <= MAX_ATTEMPTS:
        tree = fleet.worker(database, ready=False, QUEUE_VISIBILITY_MS="800", FAULTS_MUTANT=mutant)
        until(lambda tree=tree: not tree.alive or not database.waiting(), 60, tree.tail)
        starts = len(fleet.journal.by_job("start")[poison])
    return poison, starts


def test_attempts_end_at_their_maximum_also_when_whole_trees_die(database: Database, fleet: Fleet) -> None:
    poison, starts = kill_whole_trees(database, fleet)
    records = database.records()
    found = records.pop(poison)
    assert (found.status, found.attempts, starts) == ("failed", MAX_ATTEMPTS, MAX_ATTEMPTS)
    assert {job.status for job in records.values()} == {"succeeded"}


def test_the_attack_notices_that_rescue_does_not_count(database: Database, fleet: Fleet) -> None:
    if isinstance(database, PostgresDatabase):
        database.change_function("rescue", give_attempts_back)
        _, starts = kill_whole_trees(database, fleet)
    else:
        _, starts = kill_whole_trees(database, fleet, mutant="rescue_is_free")
    assert starts > MAX_ATTEMPTS


def give_attempts_back(rescue: str) -> str:
    never_the_last = rescue.replace("g.attempt >= j.max_attempts", "false")
    return re.sub(r"(priority,) attempt, (deaths, queue, limit_key, clock)", r"\1 attempt - 1, \2", never_the_last)

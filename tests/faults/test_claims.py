"""One live owner per job: however many processes claim from one queue, no job is claimed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from faults import claim_race
from faults.databases import Database, MongoDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.until import until

PROCESSES = 8


def race(fleet: Fleet, database: Database, jobs: int, limit: int, *mutant: str) -> tuple[Counter[str], float]:
    """Claim all jobs, each process `limit` at a time. Returns how often each was claimed, and claims per second."""
    with Producer(database) as producer:
        producer.put("noop", jobs)
    racers = fleet.start("faults.claim_race", database.url, str(limit), str(PROCESSES), *mutant)
    until(lambda: len(fleet.journal.all("ready")) == PROCESSES, 60, racers.tail)
    (fleet.folder / claim_race.START).touch()
    until(lambda: not racers.alive, 90, racers.tail)
    assert racers.code == 0, racers.tail()
    claimed = Counter(job_id for entry in fleet.journal.all("claimed") for job_id, _ in entry.note)
    seconds = max(entry.note["seconds"] for entry in fleet.journal.all("ended"))
    return claimed, claimed.total() / seconds


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("jobs", "limit"),
    [
        pytest.param(300, 1, id="short"),
        pytest.param(1_000, 1, id="long, one at a time", marks=pytest.mark.long),
        pytest.param(4_000, 100, id="long", marks=pytest.mark.long),
    ],
)
def test_eight_processes_claim_each_job_once(
    database: Database, fleet: Fleet, jobs: int, limit: int, figure: Callable[[str], None]
) -> None:
    claimed, rate = race(fleet, database, jobs, limit)
    figure(f"{database.kind}: {PROCESSES} processes claim {limit} at a time: {rate:,.0f} jobs/s")
    assert set(claimed.values()) == {1}
    held = Counter(job_id for entry in fleet.journal.all("ended") for job_id in entry.note["held"])
    assert set(held.values()) == {1}
    assert len(held) == jobs
    # The store agrees on the owners, except for claims that timed out: those may have got jobs.
    unknown = held.keys() - claimed.keys()
    assert len(unknown) <= limit * len(fleet.journal.all("unanswered"))
    assert claimed.keys() <= held.keys()


def test_the_attack_notices_a_claim_without_its_guard(mongo_database: MongoDatabase, fleet: Fleet) -> None:
    claimed, _ = race(fleet, mongo_database, 4_000, 100, "unguarded")
    assert max(claimed.values()) > 1

"""One live owner, from the claim on: however many processes claim from one queue, no job is claimed twice."""

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
JOBS = {1: 1_000, 100: 4_000}  # by how many are taken at a time


def race(fleet: Fleet, database: Database, limit: int, *mutant: str) -> tuple[Counter[str], float]:
    """How often each job was claimed, and how many per second together, each process taking `limit` at a time."""
    with Producer(database) as producer:
        producer.put("noop", JOBS[limit])
    racers = [fleet.start("faults.claim_race", database.url, str(limit), *mutant) for _ in range(PROCESSES)]
    until(lambda: len(fleet.journal.all("ready")) == PROCESSES, 60, racers[0].tail)
    (fleet.folder / claim_race.START).touch()
    until(lambda: not any(racer.alive for racer in racers), 90, racers[0].tail)
    assert [racer.code for racer in fleet.trees] == [0] * PROCESSES, fleet.trees[0].tail()
    claimed = Counter(job_id for entry in fleet.journal.all("claimed") for job_id, _ in entry.note)
    seconds = max(entry.note["seconds"] for entry in fleet.journal.all("ended"))
    return claimed, claimed.total() / seconds


@pytest.mark.parametrize("limit", JOBS)
def test_eight_processes_claim_each_job_once(
    database: Database, fleet: Fleet, limit: int, figure: Callable[[str], None]
) -> None:
    claimed, rate = race(fleet, database, limit)
    figure(f"{database.kind}: {PROCESSES} processes claim {limit} at a time: {rate:,.0f} jobs/s")
    assert set(claimed.values()) == {1}
    assert len(claimed) == JOBS[limit]
    held = [job_id for entry in fleet.journal.all("ended") for job_id in entry.note["held"]]
    assert sorted(held) == sorted(claimed)  # the store says the same of who has what


def test_the_attack_notices_a_claim_without_its_guard(mongo_database: MongoDatabase, fleet: Fleet) -> None:
    claimed, _ = race(fleet, mongo_database, 100, "unguarded")
    assert max(claimed.values()) > 1

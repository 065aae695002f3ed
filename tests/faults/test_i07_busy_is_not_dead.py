"""I7: a live, busy job is never taken, though its handler lets nothing else run in its process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.databases import Database
from faults.processes import QUICK, Fleet
from faults.producer import Producer
from faults.until import until

LEASE_SECONDS = 0.8
LEASES = 5
LEASE = {"QUEUE_VISIBILITY_MS": "800"}
jobs = pytest.mark.parametrize(
    "number",
    [pytest.param(1, id="short"), pytest.param(40, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)])],
)


def put_holders(database: Database, number: int) -> list[str]:
    with Producer(database, {**QUICK, **LEASE}) as producer:
        return producer.put("hold", number, seconds=LEASE_SECONDS * LEASES)


@jobs
def test_a_handler_that_holds_the_interpreter_for_five_leases_keeps_its_job(
    database: Database, fleet: Fleet, number: int, figure: Callable[[str], None]
) -> None:
    held = put_holders(database, number)
    # Two trees: each would take the other's jobs, if it could.
    trees = [fleet.worker(database, ready=False, concurrency=1, processes=1, **LEASE) for _ in range(2)]
    seconds = 30 + LEASE_SECONDS * LEASES * number
    until(lambda: database.waiting() == 0, seconds, lambda: trees[0].tail() + trees[1].tail())
    starts = fleet.journal.by_job("start")
    assert {job: len(starts[job]) for job in held} == dict.fromkeys(held, 1)
    assert {(job.status, job.attempts) for job in database.records().values()} == {("succeeded", 1)}
    figure(f"I7 {database.kind}: {number} jobs held the interpreter for {LEASES} leases, 0 second starts")


def test_the_attack_notices_a_heartbeat_inside_the_worker(database: Database, fleet: Fleet) -> None:
    """`app.work()` keeps its own leases: with a handler like this it cannot, and another worker takes the job."""
    put_holders(database, 1)
    inline = fleet.start("faults.inline", database.url, **LEASE)
    until(lambda: fleet.journal.all("start"), 20, inline.tail)
    tree = fleet.worker(database, ready=False, **LEASE)
    until(lambda: len(fleet.journal.all("start")) == 2, LEASE_SECONDS * LEASES, tree.tail)

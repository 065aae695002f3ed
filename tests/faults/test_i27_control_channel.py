"""I27: a handler and its subprocesses cannot disturb the channel between its worker and the supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from faults.databases import Database
from faults.processes import QUICK, Fleet, Tree
from faults.producer import Producer
from faults.until import until

GRACE_SECONDS = 1.0
NOTICE_SECONDS = GRACE_SECONDS + 1.0
PATIENCE_SECONDS = 30.0  # on a machine with other load
LEASE = {"QUEUE_VISIBILITY_MS": "60000", "QUEUE_HEARTBEAT_MS": "100", "ROWLOCK_GRACE_SECONDS": str(GRACE_SECONDS)}


@pytest.fixture
def no_subprocess_left(fleet: Fleet) -> Iterator[None]:
    yield
    for entry in fleet.journal.all("subprocess"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(entry.note)
            for each in (*process.children(), process):
                each.kill()


def disturbed(fleet: Fleet, database: Database, type_name: str = "disturb", mutant: str = "") -> tuple[Tree, int]:
    """Start a worker, let its handler do its worst, and return the tree and the handler's process."""
    tree = fleet.worker(database, FAULTS_MUTANT=mutant, **LEASE)
    with Producer(database, {**QUICK, **LEASE}) as producer:
        producer.put(type_name)
    (done,) = until(lambda: fleet.journal.all("disturbed"), PATIENCE_SECONDS, tree.tail)
    return tree, done.pid


def taken(fleet: Fleet) -> bytes:
    """Return what the subprocesses have read."""
    files = [Path(f"{fleet.journal.path}.{name}") for name in ("reads.read", "nibbles.nibbled", "forked")]
    until(lambda: all(file.exists() for file in files), PATIENCE_SECONDS, "not every subprocess has begun")
    return b"".join(file.read_bytes() for file in files)


def standard_input(fleet: Fleet) -> str:
    """Return the subprocesses' standard input."""
    file = Path(f"{fleet.journal.path}.reads.stdin")
    return until(lambda: file.exists() and file.read_text().strip(), PATIENCE_SECONDS) or ""


def heartbeats(tree: Tree, database: Database, count: int) -> None:
    """Wait until the supervisor has renewed its workers' leases `count` times."""
    seen = set[datetime]()
    with Producer(database) as producer:

        async def look() -> bool:
            seen.update(worker.seen_at for worker in await producer.app.store.workers())
            return len(seen) > count

        until(lambda: producer.app.blocking.run(look()), PATIENCE_SECONDS, tree.tail)


def ended(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def kill_supervisor(tree: Tree, worker: int) -> float:
    """Kill the supervisor. Returns how long the worker lives on."""
    killed = time.monotonic()
    os.kill(tree.pid, signal.SIGKILL)
    until(lambda: ended(worker), PATIENCE_SECONDS, tree.tail)
    return time.monotonic() - killed


@pytest.mark.usefixtures("no_subprocess_left")
def test_subprocesses_read_nothing_and_inherit_nothing_of_ours(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    tree, worker = disturbed(fleet, database)
    heartbeats(tree, database, 5)
    assert standard_input(fleet) == os.devnull
    assert taken(fleet) == b""
    listing = Path(f"{fleet.journal.path}.closes.open")
    opened = until(lambda: listing.exists() and listing.read_text().split(), PATIENCE_SECONDS, "it lists its files")
    assert set(opened or ()) == {"0", "1", "2", "3"}, "3 is the listing itself"
    took = kill_supervisor(tree, worker)
    figure(f"I27 {database.kind}: the worker ended {took:.2f} s after its supervisor (promised: {NOTICE_SECONDS:g} s)")


@pytest.mark.usefixtures("no_subprocess_left")
def test_the_supervisor_notices_a_workers_death_although_its_subprocesses_live(
    database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    tree, worker = disturbed(fleet, database)
    killed = tree.kill_worker(worker)
    until(lambda: len(fleet.journal.all("disturbed")) == 2, PATIENCE_SECONDS, tree.tail)
    figure(f"I27 {database.kind}: started again {fleet.journal.all('start')[-1].at - killed:.2f} s after the death")
    assert [event["pid"] for event in tree.events("worker.died")] == [worker]


def test_a_worker_that_hears_nothing_any_more_ends_with_its_supervisor(
    sqlite_database: Database, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    """Its handler closed the channel, ignores SIGTERM and blocks the event loop."""
    tree, worker = disturbed(fleet, sqlite_database, "deaf")
    took = kill_supervisor(tree, worker)
    figure(f"I27: a deaf worker ended {took:.2f} s after its supervisor (promised: {NOTICE_SECONDS:g} s)")


def test_the_supervisor_replaces_a_worker_that_closed_its_channel(sqlite_database: Database, fleet: Fleet) -> None:
    tree, worker = disturbed(fleet, sqlite_database, "deaf")
    until(lambda: ended(worker), PATIENCE_SECONDS, tree.tail)
    assert tree.events("worker.out_of_reach")
    until(lambda: len(fleet.journal.all("disturbed")) == 2, PATIENCE_SECONDS, tree.tail)


@pytest.mark.usefixtures("no_subprocess_left")
def test_the_attack_notices_a_channel_on_standard_input(sqlite_database: Database, fleet: Fleet) -> None:
    disturbed(fleet, sqlite_database, mutant="stdin_channel")
    assert standard_input(fleet) != os.devnull


def test_the_attack_notices_a_missing_leash(sqlite_database: Database, fleet: Fleet) -> None:
    tree, worker = disturbed(fleet, sqlite_database, "deaf", mutant="no_leash")
    os.kill(tree.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="not within"):
        until(lambda: ended(worker), 2 * NOTICE_SECONDS)

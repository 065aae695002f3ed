"""I16: no session state is needed: connections are cut, slow or half-open, or go through a pooler."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from faults.databases import MongoDatabase, PostgresDatabase
from faults.pgbouncer import Pgbouncer, find_pgbouncer
from faults.processes import TESTS, Fleet, Tree, _plain_environment
from faults.producer import Producer
from faults.proxy import Proxy, proxy_of
from faults.until import after, until

BACK_SECONDS = 5.0  # promised; judged by the best of several rounds in `make faults`
PATIENCE_SECONDS = 40.0  # shorter than the statement timeout of a minute
PACE = 100  # incoming jobs per second: far fewer than the workers can do, so that a busy machine is no failure
WINDOW_SECONDS = 0.5
SHORT, LONG = 1, 8

rounds = pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(400)]),
    ],
)


class Stream:
    """A steady stream of jobs, and the speed of workers behind a proxy."""

    def __init__(
        self, fleet: Fleet, database: PostgresDatabase | MongoDatabase, proxy: Proxy, **environment: str
    ) -> None:
        self.fleet = fleet
        self.database = database
        self.proxy = proxy
        self.producer = Producer(database)
        self.tree: Tree = fleet.worker(database.through(proxy.port), ready=False, **environment)
        self._put, self._began = 0, time.monotonic()
        until(lambda: self._speed(WINDOW_SECONDS) >= PACE / 2, 60, self.tree.tail)

    def flow_for(self, seconds: float) -> None:
        """Enqueue jobs at PACE for `seconds`."""
        over = after(seconds)
        while not over():
            due = int((time.monotonic() - self._began) * PACE) - self._put
            self.producer.put("tick", due)
            self._put += due
            until(after(0.05), 1)

    def back_after(self) -> float:
        """Return the seconds until jobs are done at half of PACE."""
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE_SECONDS:
            window = time.monotonic()
            if self._speed(WINDOW_SECONDS) >= PACE / 2:
                return window - began
        raise AssertionError(f"not back after {PATIENCE_SECONDS:g} s:\n{self.tree.tail()}")

    def finish(self) -> None:
        until(lambda: self.database.waiting() == 0, 60, lambda: f"{self.database.statuses()} {self.tree.tail()}")
        assert set(self.database.statuses()) == {"succeeded"}
        assert {job.id for job in self.database.records().values()} <= self.fleet.journal.jobs("end")

    def _speed(self, seconds: float) -> float:
        """Return jobs per second that the store has settled; unsettled work may be repeated and does not count."""
        began, before = time.monotonic(), self._finished()
        self.flow_for(seconds)
        return (self._finished() - before) / (time.monotonic() - began)

    def _finished(self) -> int:
        return self.database.finished()


@pytest.fixture
def proxy(remote: PostgresDatabase | MongoDatabase) -> Iterator[Proxy]:
    with proxy_of(remote) as proxy:
        yield proxy


@rounds
def test_throughput_is_back_soon_after_a_network_failure(
    remote: PostgresDatabase | MongoDatabase,
    fleet: Fleet,
    proxy: Proxy,
    rng: random.Random,
    rounds: int,
    figure: Callable[[str], None],
) -> None:
    stream = Stream(fleet, remote, proxy)
    took = defaultdict[str, list[float]](list)

    def cut() -> None:
        proxy.cut()

    def unreachable() -> None:
        proxy.refusing = True
        proxy.cut()
        stream.flow_for(1.0)
        proxy.refusing = False

    def slow() -> None:
        proxy.delay_seconds = 0.2
        stream.flow_for(0.8)
        proxy.delay_seconds = 0.0

    def lossy() -> None:
        proxy.lose(rng, requests=(1, 10), replies=(1, 5))
        stream.flow_for(1.0)
        proxy.lose_nothing()

    for _ in range(rounds):
        for failure in rng.sample([cut, unreachable, slow, lossy], 4):
            failure()
            took[failure.__name__].append(stream.back_after())
    figure(f"I16 {remote.kind}: back after " + ", ".join(f"{name} {max(each):.1f} s" for name, each in took.items()))
    stream.finish()
    stream.producer.app.blocking.close()
    if rounds > 1:
        assert max(map(min, took.values())) <= BACK_SECONDS


@rounds
def test_throughput_is_back_soon_after_connections_became_half_open(
    remote: PostgresDatabase | MongoDatabase,
    fleet: Fleet,
    proxy: Proxy,
    rounds: int,
    figure: Callable[[str], None],
) -> None:
    """The worst case, without any error: every existing connection is dead, new ones work at once."""
    stream = Stream(fleet, remote, proxy)
    took = []
    for _ in range(rounds):
        proxy.silence()
        took.append(stream.back_after())
    figure(f"I16 {remote.kind}: back {max(took):.1f} s after all connections became half-open")
    stream.finish()
    stream.producer.app.blocking.close()
    if rounds > 1:
        assert min(took) <= BACK_SECONDS


@pytest.fixture
def pooler(postgres_database: PostgresDatabase) -> Iterator[Pgbouncer]:
    if find_pgbouncer() is None:
        pytest.skip("pgbouncer is not installed: sh tests/faults/get_pgbouncer.sh")
    with Pgbouncer(postgres_database.server.port) as pooler:
        yield pooler


def test_workers_drain_a_queue_behind_a_pooler(
    postgres_database: PostgresDatabase, fleet: Fleet, pooler: Pgbouncer, figure: Callable[[str], None]
) -> None:
    """Two trees, a worker of one dies: claims, settlements, heartbeats and rescue all share three sessions."""
    url = pooler.before(postgres_database.url)
    with Producer(url) as producer:
        jobs = producer.put("nap", 400, seconds=0.01)
        began = time.monotonic()
        trees = [fleet.worker(url, ready=False, processes=2) for _ in range(2)]
        until(lambda: len(fleet.journal.all("start")) > 100, 60, trees[0].tail)
        trees[0].kill()
        until(lambda: postgres_database.waiting() == 0, 60, trees[1].tail)
    assert {job.status for job in postgres_database.records().values()} == {"succeeded"}
    assert set(jobs) <= fleet.journal.jobs("end")
    figure(f"I16 pgbouncer: {len(jobs):,} jobs through 3 shared sessions in {time.monotonic() - began:.1f} s")


def test_the_attack_notices_that_a_session_is_relied_on(
    postgres_database: PostgresDatabase, fleet: Fleet, pooler: Pgbouncer
) -> None:
    with Producer(postgres_database) as producer:
        producer.put("nap", 1_000, seconds=0.01)
    tree = fleet.worker(pooler.before(postgres_database.url), ready=False, processes=2, FAULTS_MUTANT="session_state")
    until(lambda: "prepared statement" in tree.log.read_text(), 60, tree.tail)


BROAD = "test_claim or test_settle or test_rescue"


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(BROAD, id="short"),
        pytest.param("", id="long", marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_the_conformance_suite_holds_behind_a_pooler(selection: str, figure: Callable[[str], None]) -> None:
    if find_pgbouncer() is None:
        pytest.skip("pgbouncer is not installed: sh tests/faults/get_pgbouncer.sh")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "faults.behind_pgbouncer", "-p", "no:cacheprovider"),
            *("-m", "not long", "-k", selection, str(TESTS / "conformance")),
        ],
        env=_plain_environment(),
        cwd=TESTS.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1_700,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 50
    figure(f"I16 pgbouncer: {passed} conformance cases hold in transaction mode")

"""Failures of MongoDB itself: a crash, a change of primary, a lost reply to a completed write."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pymongo.errors import PyMongoError

from faults.conftest import migrate
from faults.databases import MongoDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.test_i01_nothing_lost import attack, lengths, lost
from faults.test_i15_full_disk import SmallMount, mounted
from faults.until import after, until
from mongo_server import MongoServer
from rowlock.errors import StoreUnavailable

REFUSALS = 2  # each takes the driver's server selection timeout
SPACE_MB = 500  # its journal alone takes some hundreds
OPEN_SECONDS_MAX = 25.0  # with leases of a second; generous, and far from the server's minute
VAIN_SECONDS = 6.0
LARGE_BYTES, LARGE_JOBS_MAX = 200_000, 2_000


@pytest.fixture
def crashing() -> Iterator[MongoDatabase]:
    """A database on a separate server with its data on disk, to be crashed."""
    with MongoServer() as server:
        made = MongoDatabase(server)
        migrate(made)
        yield made


@pytest.fixture(scope="module")
def three_members() -> Iterator[MongoServer]:
    with MongoServer(3) as server:
        yield server


@pytest.fixture
def replicated(three_members: MongoServer) -> MongoDatabase:
    made = MongoDatabase(three_members)
    migrate(made)
    return made


@pytest.fixture(scope="module")
def testable() -> Iterator[MongoServer]:
    """A database on a server with fail points."""
    with MongoServer(settings={"enableTestCommands": 1}) as server:
        yield server


@pytest.fixture
def failing(testable: MongoServer) -> MongoDatabase:
    made = MongoDatabase(testable)
    migrate(made)
    return made


@lengths
def test_no_job_is_lost_when_mongod_is_killed_too(
    crashing: MongoDatabase, fleet: Fleet, rng: random.Random, rounds: int, figure: Callable[[str], None]
) -> None:
    crashes = 0

    def crash() -> None:
        nonlocal crashes
        crashing.server.node.restart()
        crashes += 1

    attack(fleet, crashing, rng, rounds, crash)
    figure(f"I1 mongo: mongod killed {crashes} times")
    assert crashes
    assert lost(fleet, crashing, figure) == set()


@lengths
def test_no_job_is_lost_when_the_primary_changes(
    replicated: MongoDatabase, fleet: Fleet, rng: random.Random, rounds: int, figure: Callable[[str], None]
) -> None:
    elections = 0

    def change() -> None:
        nonlocal elections
        before = replicated.server.primary
        if rng.random() < 0.5:
            step_down(replicated.server)
        else:
            before.kill()
        until(lambda: replicated.server.primary is not before, 30, "there was no election")
        elections += 1
        if not before.running:
            before.start()

    attack(fleet, replicated, rng, rounds, change)
    figure(f"I1 mongo: the primary of three changed {elections} times")
    assert elections
    assert lost(fleet, replicated, figure) == set()


def step_down(server: MongoServer) -> None:
    """Have another member become primary, as an operator does."""
    try:
        server.primary.command({"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5, "force": True})
    except PyMongoError:  # the server closes the connection that asks for it
        return


def test_the_attack_notices_writes_that_nobody_else_has(
    replicated: MongoDatabase, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    """With w=1, an isolated primary acknowledges writes that are lost when it is replaced."""
    server = replicated.server
    producer = fleet.start("faults.producer", replicated.url, "1000000", FAULTS_MUTANT="unreplicated")
    until(lambda: fleet.journal.jobs("acknowledged"), 60, producer.tail)
    before = server.primary
    others = [node for node in server.nodes if node is not before]
    for node in others:
        node.kill()
    begun = len(fleet.journal.jobs("acknowledged"))
    until(lambda: len(fleet.journal.jobs("acknowledged")) > begun + 5, 60, producer.tail)
    producer.kill()
    before.kill()
    for node in others:
        node.start()
    until(lambda: server.primary is not before, 30, "there was no election")
    before.start()
    assert lost(fleet, replicated, figure)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(40, id="short"),
        pytest.param(2_000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_reply_that_was_cut_after_the_write_makes_no_second_job(
    failing: MongoDatabase, fleet: Fleet, number: int, figure: Callable[[str], None]
) -> None:
    cuts = [
        ("onPrimaryTransactionalWrite", {"closeConnection": True}),  # after a single-statement write
        ("failCommand", {"failCommands": ["commitTransaction"], "closeConnection": True}),
    ]
    tree = fleet.worker(failing, ready=False)
    keys, cut = 0, Counter[str]()
    while len(cut) < len(cuts):  # each point has cut something: callers share a commit, so few may be asked for
        keys += number
        for point, data in cuts:
            failing.fail(point, {"activationProbability": 0.2}, **data)
        try:
            client = fleet.start("faults.keyed_client", failing.url, str(keys))
            until(lambda client=client: not client.alive, 60 + number * 0.2, client.tail)
            assert client.code == 0, client.tail()
            until(lambda keys=keys: failing.finished() == keys, 60, tree.tail)
        finally:
            cut += Counter({point: failing.end_failing(point) for point, _ in cuts})
    figure(f"I2 mongo: {keys} keys, {cut.total()} connections cut by fail points, {len(failing.records())} jobs")
    assert len(failing.records()) == keys
    assert set(failing.statuses()) == {"succeeded"}


@pytest.fixture
def small() -> Iterator[MongoDatabase]:
    """A database on a server with a small disk."""
    server = MongoServer()
    folder = server.node.folder / "data"
    folder.mkdir(parents=True)
    if not mounted(folder, SPACE_MB):
        pytest.skip("a small disk for MongoDB has to be mounted, which only root may")
    try:
        with server:
            made = MongoDatabase(server)
            migrate(made)
            yield made
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_gives_no_false_answer_and_work_goes_on_when_there_is_space(
    small: MongoDatabase, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    """mongod exits when it cannot write; acknowledged jobs are there after its restart."""
    node = small.server.node
    disk = SmallMount(node.folder / "data", small)
    with Producer(small) as producer:
        acknowledged, refused = set(producer.put("tick", 3)), 0
        disk.fill()
        for _ in range(LARGE_JOBS_MAX):
            try:
                acknowledged.update(producer.put("padded", text=os.urandom(LARGE_BYTES).hex()))
            except StoreUnavailable:
                refused += 1
                if refused == REFUSALS:
                    break
        figure(f"I15 mongo: {len(acknowledged)} jobs acknowledged, then {refused} refused on a full disk")
        assert refused == REFUSALS
        until(lambda: not node.running, 20, "mongod went on")
        disk.free()
        node.start()
        until(lambda: node.primary, 30, "it is no primary")
        assert small.records().keys() >= acknowledged
        assert len(small.records()) <= len(acknowledged) + refused  # unanswered enqueues may have succeeded
        tree = fleet.worker(small, ready=False)
        until(lambda: small.waiting() == 0, 60, tree.tail)
    assert set(small.records("succeeded")) >= acknowledged


@pytest.mark.parametrize("supervisor", ["lives", "dies"])
def test_an_open_transaction_of_a_killed_worker_is_in_nobodys_way(
    mongo_database: MongoDatabase, fleet: Fleet, supervisor: str, figure: Callable[[str], None]
) -> None:
    """The server itself would keep the transaction open for a minute."""
    took = kill_within_a_transaction(mongo_database, fleet, supervisor, OPEN_SECONDS_MAX)
    figure(f"I6 mongo: done {took:.2f} s after its worker was killed within a transaction; its supervisor {supervisor}")


def test_the_attack_notices_transactions_that_are_left_open(mongo_database: MongoDatabase, fleet: Fleet) -> None:
    with pytest.raises(AssertionError, match="not within"):
        kill_within_a_transaction(mongo_database, fleet, "lives", VAIN_SECONDS, mutant="transactions_left_open")


def kill_within_a_transaction(
    database: MongoDatabase, fleet: Fleet, supervisor: str, seconds: float, mutant: str = ""
) -> float:
    """Kill a worker within a transaction. Returns the seconds until its job is done."""
    database.data["kept"].replace_one({"_id": "all"}, {"jobs": 0}, upsert=True)
    trees = [fleet.worker(database, FAULTS_MUTANT=mutant) for _ in range(1 if supervisor == "lives" else 2)]
    with Producer(database) as producer:
        producer.put("keeps", 1)
    (started,) = until(lambda: fleet.journal.all("start"), 60, trees[0].tail)
    (tree,) = (tree for tree in trees if started.pid in tree.workers())
    killed = time.monotonic()
    if supervisor == "dies":
        tree.kill()
    else:
        tree.kill_worker(started.pid)
    until(lambda: database.finished() == 1, seconds, tree.tail)
    return time.monotonic() - killed


def test_a_standalone_server_is_enough(fleet: Fleet, rng: random.Random, figure: Callable[[str], None]) -> None:
    """No transactions or change streams; workers and producers are killed as in the other attacks."""
    with MongoServer(0) as server:
        alone = MongoDatabase(server)
        migrate(alone)
        attack(fleet, alone, rng, 1)
        assert lost(fleet, alone, figure) == set()
        for tree in fleet.trees:
            tree.clear_away()


def test_workers_wait_for_a_primary(replicated: MongoDatabase, fleet: Fleet, figure: Callable[[str], None]) -> None:
    """With two of three members down, nothing can be written; no worker gives up, work continues when they are back."""
    tree = fleet.worker(replicated, ready=False)
    with Producer(replicated) as producer:
        producer.put("nap", 20, seconds=0.05)
        until(lambda: replicated.finished() == 20, 30, tree.tail)
        server = replicated.server
        away = [node for node in server.nodes if node is not server.primary]
        for node in away:
            node.kill()
        until(after(3), 5)
        for node in away:
            node.start()
        until(lambda: any(node.primary for node in server.nodes), 30, "there is a primary again")
        producer.put("nap", 20, seconds=0.05)
    until(lambda: replicated.finished() == 40, 60, tree.tail)
    figure("I16 mongo: work went on after two of three members were away")
    assert tree.alive

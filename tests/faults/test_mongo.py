"""What MongoDB itself may do to us: crash, change its primary, cut the reply to a write that it has done."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator

import pytest
from pymongo.errors import PyMongoError

from faults.conftest import migrate
from faults.databases import MongoDatabase
from faults.processes import Fleet
from faults.producer import Producer
from faults.test_i01_nothing_lost import attack, lost
from faults.test_i15_full_disk import REFUSALS, SmallMount, mounted
from faults.until import after, until
from mongo_server import MongoServer
from rowlock.errors import StoreUnavailable

SHORT, LONG = 10.0, 60.0
DRAIN_SECONDS = 60.0
SPACE_MB = 500  # its journal alone takes some hundreds
LARGE_BYTES, LARGE_JOBS_MAX = 200_000, 2_000
lengths = pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT, id="short", marks=[pytest.mark.timeout(200)]),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(LONG + 4 * DRAIN_SECONDS)]),
    ],
)


@pytest.fixture
def crashing() -> Iterator[MongoDatabase]:
    """On a server of its own that keeps its data on a disk, to be crashed."""
    with MongoServer() as server:
        made = MongoDatabase(server)
        migrate(made)
        yield made


@pytest.fixture(scope="module")
def three_members() -> Iterator[MongoServer]:
    with MongoServer(3, durable=False) as server:
        yield server


@pytest.fixture
def replicated(three_members: MongoServer) -> MongoDatabase:
    made = MongoDatabase(three_members)
    migrate(made)
    return made


@pytest.fixture(scope="module")
def testable() -> Iterator[MongoServer]:
    """A server with fail points."""
    with MongoServer(durable=False, settings={"enableTestCommands": 1}) as server:
        yield server


@pytest.fixture
def failing(testable: MongoServer) -> MongoDatabase:
    made = MongoDatabase(testable)
    migrate(made)
    return made


@lengths
def test_no_job_is_lost_when_mongod_is_killed_too(
    crashing: MongoDatabase, fleet: Fleet, rng: random.Random, seconds: float, figure: Callable[[str], None]
) -> None:
    crashes = 0

    def crash() -> None:
        nonlocal crashes
        crashing.server.node.restart()
        crashes += 1

    attack(fleet, crashing, rng, seconds, crash)
    figure(f"I1 mongo: mongod killed {crashes} times")
    assert crashes
    assert lost(fleet, crashing, figure) == set()


@lengths
def test_no_job_is_lost_when_the_primary_changes(
    replicated: MongoDatabase, fleet: Fleet, rng: random.Random, seconds: float, figure: Callable[[str], None]
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

    attack(fleet, replicated, rng, seconds, change)
    figure(f"I1 mongo: the primary of three changed {elections} times")
    assert elections
    assert lost(fleet, replicated, figure) == set()


def step_down(server: MongoServer) -> None:
    """As an operator does: another member is to be the primary."""
    try:
        server.primary.command({"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5, "force": True})
    except PyMongoError:  # it hangs up on whoever tells it
        return


def test_the_attack_notices_writes_that_nobody_else_has(
    replicated: MongoDatabase, fleet: Fleet, figure: Callable[[str], None]
) -> None:
    """With w=1 an answer is forgotten with the primary that gave it while it did not know yet that it was alone."""
    server = replicated.server
    producer = fleet.start("faults.producer", replicated.url, "1000000", FAULTS_MUTANT="unreplicated")
    until(lambda: fleet.journal.jobs("acknowledged"), 20, producer.tail)
    before = server.primary
    others = [node for node in server.nodes if node is not before]
    for node in others:
        node.kill()
    begun = len(fleet.journal.jobs("acknowledged"))
    until(lambda: len(fleet.journal.jobs("acknowledged")) > begun + 5, 20, producer.tail)
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
        pytest.param(100, id="short"),
        pytest.param(2_000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_reply_that_was_cut_after_the_write_makes_no_second_job(
    failing: MongoDatabase, fleet: Fleet, number: int, figure: Callable[[str], None]
) -> None:
    cuts = [
        ("onPrimaryTransactionalWrite", {"closeConnection": True}),  # once a write of one statement is done
        ("failCommand", {"failCommands": ["commitTransaction"], "closeConnection": True}),
    ]
    for point, data in cuts:
        failing.fail(point, {"activationProbability": 0.2}, **data)
    try:
        client = fleet.start("faults.keyed_client", failing.url, str(number))
        tree = fleet.worker(failing, ready=False)
        until(lambda: not client.alive, 60 + number * 0.2, client.tail)
        assert client.code == 0, client.tail()
        until(lambda: failing.finished() == number, 60, tree.tail)
    finally:
        cut = [failing.end_failing(point) for point, _ in cuts]
    figure(f"I2 mongo: {number} keys, {sum(cut)} connections cut by fail points, {len(failing.records())} jobs")
    assert all(cut), cut
    assert len(failing.records()) == number
    assert set(failing.statuses()) == {"succeeded"}


@pytest.fixture
def small() -> Iterator[MongoDatabase]:
    """On a server whose disk is small."""
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
    """mongod ends itself when it cannot write; what it had acknowledged is there when it has been started again."""
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
        assert len(small.records()) <= len(acknowledged) + refused  # what was not answered may be there
        tree = fleet.worker(small, ready=False)
        until(lambda: small.waiting() == 0, 60, tree.tail)
    assert set(small.records("succeeded")) >= acknowledged


def test_a_standalone_server_is_enough(fleet: Fleet, rng: random.Random, figure: Callable[[str], None]) -> None:
    """Without transactions and change streams; workers and producers are killed as ever."""
    with MongoServer(0, durable=False) as server:
        alone = MongoDatabase(server)
        migrate(alone)
        attack(fleet, alone, rng, 2.5)
        assert lost(fleet, alone, figure) == set()
        for tree in fleet.trees:
            tree.clear_away()


def test_workers_wait_for_a_primary(replicated: MongoDatabase, fleet: Fleet, figure: Callable[[str], None]) -> None:
    """Two members of three are away: nothing can be written, nobody gives up, and work goes on when they are back."""
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

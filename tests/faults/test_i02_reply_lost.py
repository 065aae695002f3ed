"""I2: one key, one job, even if the reply is lost and the client asks again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase
from faults.processes import Fleet
from faults.proxy import Proxy, proxy_of
from faults.until import until

SHORT, LONG = 20, 2_000
NUMBER_TO_NOTICE = 40
keys = pytest.mark.parametrize(
    "number",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)


def ask_again_and_again(
    fleet: Fleet, database: PostgresDatabase | MongoDatabase, rng: random.Random, number: int, mutant: str = ""
) -> Proxy:
    """Enqueue `number` keys through a network that loses two in five replies. Returns what it lost."""
    with proxy_of(database) as proxy:
        # Two of every five: the 4 callers share commits, so 20 keys may take no more than 5 that are answered.
        proxy.lose(rng, requests=(1, 10), replies=(2, 5))
        url = database.through(proxy.port)
        client = fleet.start("faults.keyed_client", url, str(number), FAULTS_MUTANT=mutant)
        until(lambda: not client.alive, 60 + number * 0.2, client.tail)
        assert client.code == 0, client.tail()
    assert len(fleet.journal.jobs("acknowledged")) <= number
    return proxy


def jobs_and_keys(fleet: Fleet, database: Database) -> tuple[int, int]:
    keys = {entry.note for entry in fleet.journal.all("acknowledged")}
    return len(database.records()), len(keys)


@pytest.mark.every_store
@keys
def test_a_lost_reply_does_not_make_a_second_job(
    remote: PostgresDatabase | MongoDatabase,
    fleet: Fleet,
    rng: random.Random,
    number: int,
    figure: Callable[[str], None],
) -> None:
    proxy = ask_again_and_again(fleet, remote, rng, number)
    assert proxy.counts["reply"] > number / 20, "the network lost too few replies for this to be an attack"
    assert jobs_and_keys(fleet, remote) == (number, number)
    figure(f"I2 {remote.kind}: {number} keys, {proxy.counts['reply']} replies lost after the commit, {number} jobs")


def test_the_attack_notices_that_keys_are_ignored(
    postgres_database: PostgresDatabase, fleet: Fleet, rng: random.Random
) -> None:
    ask_again_and_again(fleet, postgres_database, rng, NUMBER_TO_NOTICE, mutant="keyless")
    jobs, keys = jobs_and_keys(fleet, postgres_database)
    assert jobs > keys


@pytest.mark.parametrize("mutant", ["", "keyless"])
@pytest.mark.parametrize("kind", ["sqlite", "mongo"])
def test_a_client_that_died_before_its_reply_may_ask_again(
    request: pytest.FixtureRequest, kind: str, fleet: Fleet, mutant: str
) -> None:
    """Stores without a network, or with idempotent commits, lose the reply because the client dies before it."""
    database: Database = request.getfixturevalue(f"{kind}_database")
    number, deaths = 4, 0
    while len({entry.note for entry in fleet.journal.all("acknowledged")}) < number:
        # The first client dies after its first commit, for all keys may be in that one.
        commits = "2" if deaths else "1"
        client = fleet.start(
            "faults.keyed_client", database.url, str(number), FAULTS_MUTANT=mutant, FAULTS_DIE_AFTER_COMMITS=commits
        )
        until(lambda client=client: not client.alive, 60, client.tail)
        assert client.code in (0, os.EX_TEMPFAIL), client.tail()
        deaths += client.code != 0
    assert deaths
    jobs, keys = jobs_and_keys(fleet, database)
    assert keys == number
    assert jobs > keys if mutant else jobs == keys

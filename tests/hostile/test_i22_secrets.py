"""I22: secrets are not shown in logs, stored errors or the command line, wherever they came from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from faults.databases import Database, MongoDatabase, PostgresDatabase
from faults.processes import Fleet
from faults.until import until
from hostile.commands import APP, command
from rowlock.clock import StoreClock
from rowlock.ids import uuid7
from rowlock.settings import load
from rowlock.storage.open import open_store
from rowlock.storage.records import NewJob

MARK = "cAnArY"
_numbers = count(100)


def canary() -> str:
    """A secret that nothing else looks like."""
    return f"{MARK}{next(_numbers)}"


MESSAGES: list[Callable[[str], str]] = [
    lambda c: f"password={c}",
    lambda c: f"PASSWORD: {c}",
    lambda c: f"login failed for bob (password: '{c}', attempt 3)",
    lambda c: f'password="{c} {c}"',
    lambda c: f"401 for Authorization: Bearer {c}",
    lambda c: f"Authorization: Basic {c}==",
    lambda c: f"sent Bearer {c} to the API",
    lambda c: f"X-Api-Key: {c}",
    lambda c: f"apiKey={c}&x=1",
    lambda c: f"clientSecret: {c}",
    lambda c: f"GET https://api.example.com/v1?access_token={c}&limit=10 gave 403",
    lambda c: f"https://user:{c}@example.com/path",
    lambda c: f"https://{c}@example.com/repo.git",
    lambda c: f"postgresql://app:{c}@db.internal:5432/app refused",
    lambda c: f"amqp://app:{c}@mq/%2f",
    lambda c: f"redis://:{c}@cache:6379/0",
    lambda c: json.dumps({"api_key": c, "nested": {"refresh_token": c}}),
    lambda c: repr({"token": c, "headers": [("Authorization", f"Bearer {c}")]}),
    lambda c: repr({"headers": {"x-secret": c}}),
    lambda c: f"b'password={c}'",
    lambda c: json.dumps(json.dumps({"password": c})),
    lambda c: f"first line\nsecret: {c}\nlast line",
    lambda c: f"set-cookie: session_token={c}; HttpOnly",
    lambda c: f"mysql --password {c} died",
    lambda c: f"Command {['mysql', '--password', c]} returned 1",
    lambda c: f"mysql://root:{c}@{c}@host/db",
]


def new(type_name: str, payload: object, **changes: Any) -> NewJob:
    return NewJob(uuid7(), type_name, json.dumps(payload), max_attempts=changes.pop("max_attempts", 2), **changes)


def put(database: Database, jobs: list[NewJob]) -> None:
    async def whole() -> None:
        store = open_store(load(database_url=database.url), StoreClock())
        await store.open()
        await store.enqueue(jobs)
        await store.close()

    asyncio.run(whole())


def leaks(text: str) -> list[str]:
    """The lines with a canary in them."""
    return [line[max(0, line.index(MARK) - 100) :][:200] for line in text.splitlines() if MARK in line]


def with_password(database: Database, secret: str) -> str:
    if isinstance(database, MongoDatabase):
        return database.url_with(secret)
    return database.url.replace("postgres@", f"postgres:{secret}@")


def run_jobs(database: Database, fleet: Fleet, log_format: str, jobs: list[NewJob], mutant: str = "") -> str:
    """Let a worker, as talkative as can be, run these; returns everything that it said."""
    put(database, jobs)
    tree = fleet.worker(
        with_password(database, canary()),
        ready=False,
        app=APP,
        ROWLOCK_LOG_FORMAT=log_format,
        ROWLOCK_LOG_LEVEL="debug",
        HOSTILE_MUTANT=mutant,
    )
    until(lambda: database.finished() == len(jobs) - 1, 60, tree.tail)  # one has a type that nobody knows
    until(lambda: len(tree.events("job.type_unknown")) == 1 or log_format == "text", 60, tree.tail)
    tree.stop()
    return tree.log.read_text()


def stored_errors(database: Database) -> str:
    return "\n".join(str(job.error) for job in database.records().values())


def secret_jobs() -> list[NewJob]:
    return [
        *(new("fail", {"text": message(canary()), "password": canary()}) for message in MESSAGES),
        new("strict", {"token": canary(), "nested": {"api_key": canary()}}),
        new("strict", {"token": 1, "surprising_secret": canary()}),
        new(
            "echo",
            {"api_key": canary(), "deep": [{"Authorization": f"Bearer {canary()}"}], "url": f"https://u:{canary()}@h/"},
        ),
        new("report", {"text": f"token={canary()}"}),
        new("no.such.type", {"secret": canary()}),
    ]


@pytest.mark.parametrize(("log_format", "form"), [("text", ()), ("json", ("--json",))], ids=["text", "json"])
def test_no_secret_is_in_logs_stored_errors_or_commands(
    database: Database, fleet: Fleet, log_format: str, form: tuple[str, ...]
) -> None:
    jobs = secret_jobs()
    said = run_jobs(database, fleet, log_format, jobs)
    assert leaks(said) == []
    assert leaks(stored_errors(database)) == []
    failures = database.failures()
    assert len(failures) >= len(jobs) - 1
    assert leaks(repr(failures)) == []
    assert all(name in said for name in ("job.failed", "job.retried", "job.type_unknown")), "this was no attack"
    url = with_password(database, canary())
    for arguments in (
        ["jobs", "list"],
        ["dead", "list"],
        ["failures", "list"],
        ["queues", "list"],
        ["schedules", "list"],
        ["health"],
        ["metrics"],
        ["doctor"],
    ):
        assert leaks(command(*arguments, *form, url=url).said) == []
    for job in jobs:
        assert leaks(command("jobs", "show", job.id, *form, url=url).said) == []


def test_the_attack_notices_that_redaction_is_off(sqlite_database: Database, fleet: Fleet) -> None:
    said = run_jobs(sqlite_database, fleet, "json", secret_jobs(), mutant="redaction_off")
    assert leaks(said)
    assert leaks(stored_errors(sqlite_database))
    assert leaks(repr(sqlite_database.failures()))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:{}@127.0.0.1:1/nowhere",
        "postgresql://app:{}@127.0.0.1:1/nowhere?sslmode=disable",
        "postgresql://127.0.0.1:1/nowhere?user=app&password={}",
        "postgresql://app:{}@no-such-host.invalid/nowhere",
        "postgresql://app:{}@127.0.0.1:not-a-port/nowhere",
        "postgresql://app:p{}@ss@127.0.0.1:1/nowhere",
        "mongodb://app:{}@127.0.0.1:1/nowhere?serverSelectionTimeoutMS=50",
        "mongodb://app:{}@127.0.0.1:1,127.0.0.1:2/nowhere?replicaSet=rs0&serverSelectionTimeoutMS=50",
        "mongodb://app:{}@no-such-host.invalid/nowhere?serverSelectionTimeoutMS=50",
        "mongodb://app:{}@127.0.0.1:not-a-port/nowhere",
        "mongodb://app:p{}@ss@127.0.0.1:1/nowhere",
        "mongodb://app:{}@127.0.0.1:1/nowhere?noSuchOption=1",
        "mongodb+srv://app:{}@no-such-host.invalid/nowhere",
        "mysql://app:{}@127.0.0.1/nowhere",
        "app:{}@127.0.0.1/nowhere",
    ],
)
def test_a_database_that_is_away_is_not_reported_with_its_password(url: str) -> None:
    for arguments in (("worker",), ("health", "--json"), ("doctor",)):
        done = command(*arguments, url=url.format(canary()))
        assert done.code not in (0, None)
        assert "Traceback" not in done.said
        assert leaks(done.said) == []


def test_a_worker_that_loses_its_database_does_not_tell_its_password(
    postgres_database: PostgresDatabase, fleet: Fleet
) -> None:
    tree = fleet.worker(with_password(postgres_database, canary()), ready=False, app=APP, ROWLOCK_LOG_LEVEL="debug")
    until(lambda: tree.events("worker.started"), 60, tree.tail)
    until(lambda: postgres_database.rows("SELECT 1 FROM {}workers"), 60, tree.tail)
    postgres_database.drop()
    until(lambda: tree.events("chore.delayed"), 60, tree.tail)
    tree.kill()
    assert leaks(tree.log.read_text()) == []

"""What the commands do differently on MongoDB: an empty database is set up, one that is behind is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mongo_server import MongoServer
from rowlock.cli import main
from rowlock.ids import uuid7
from rowlock.observe import logs
from rowlock.storage.migrate import Migration
from rowlock.storage.mongo import schema


@pytest.fixture
def name() -> str:
    return f"cli_{uuid7().replace('-', '')}"


@pytest.fixture
def url(mongo: MongoServer, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of the test's own, with nothing in it."""
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    monkeypatch.setenv("ROWLOCK_APP", "backoffice:app")
    yield mongo.url_of(name)
    logs.reset()  # the stream that commands log to is gone after the test
    mongo.client.drop_database(name)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_an_empty_database_is_set_up_and_one_that_is_behind_is_not(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enqueue", "healthPing", "--database", url) == 0
    assert run("worker", "--drain", "--database", url) == 0
    capsys.readouterr()
    assert run("jobs", "list", "--database", url, "--json") == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["status"] == "succeeded"

    known = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*known, Migration(len(known) + 1, "later", "", len(known))))
    for command in (("enqueue", "healthPing"), ("worker", "--drain")):
        assert run(*command, "--database", url, "--json") == 1
        out, err = capsys.readouterr()
        assert json.loads(out)["code"] == "schema_missing"
        assert err.endswith("run `rowlock migrate`\n")


def test_doctor_diagnoses_the_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("migrate", "--database", url) == 0
    capsys.readouterr()
    run("doctor", "--database", url, "--json")
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"version", "replica set"} <= {each["check"] for each in findings}


def test_doctor_tells_that_an_index_is_gone(
    url: str, name: str, mongo: MongoServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("migrate", "--database", url) == 0
    mongo.client[name]["jobs"].drop_index("ready")
    capsys.readouterr()
    assert run("doctor", "--database", url, "--json") == 1
    assert "ready" in capsys.readouterr().out

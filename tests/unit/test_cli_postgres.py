"""What the commands do differently on PostgreSQL: an empty database is set up, one that is behind is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from postgres_server import PostgresServer
from rowlock.cli import main
from rowlock.ids import uuid7
from rowlock.observe import logs


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of the test's own, with nothing in it."""
    name = f"cli_{uuid7().replace('-', '')}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    monkeypatch.setenv("ROWLOCK_APP", "backoffice:app")
    yield postgres.url_of(name)
    logs.reset()  # the stream that commands log to is gone after the test


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_an_empty_database_is_set_up_and_one_that_is_behind_is_not(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enqueue", "healthPing", "--database", url) == 0
    assert run("doctor", "--database", url, "--json") in (0, 1)  # a test server trades durability for speed
    capsys.readouterr()

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM rowlock.migrations WHERE number = (SELECT max(number) FROM rowlock.migrations)")
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
    assert [each["message"] for each in findings if each["check"] == "fsync" and each["severity"] == "error"]
    assert {"schema", "server version"} <= {each["check"] for each in findings}


def test_doctor_names_defaults_of_the_role_and_the_database_that_hurt(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("migrate", "--database", url) == 0
    capsys.readouterr()
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        for setting, value in {
            "statement_timeout": "5s",
            "lock_timeout": "1s",
            "idle_in_transaction_session_timeout": "10s",
            "default_transaction_read_only": "on",
        }.items():
            connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'".encode())
    assert run("doctor", "--database", url, "--json") == 1
    findings = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    timeout = findings["statement_timeout"]
    assert (timeout["severity"], timeout["advice"]) == (
        "warning",
        f"run ALTER ROLE postgres IN DATABASE {name} SET statement_timeout = 0, and restart the workers",
    )
    assert "5 s (set for the database)" in timeout["message"]
    assert findings["lock_timeout"]["severity"] == "warning"
    assert findings["idle_in_transaction_session_timeout"]["severity"] == "warning"
    assert findings["read-only"]["severity"] == "error"

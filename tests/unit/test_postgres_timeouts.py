"""Timeouts on PostgreSQL: statements, and hosts that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from postgres_server import PostgresServer
from rowlock.storage.postgres.connection import _TIMEOUTS, BUSY_SECONDS, SQL, _hosts, _to_primary, _wanted


@pytest.mark.parametrize(
    "verb",
    ["claim", "settle", "take_call", "end_call", "rest_calls", "hold_subjects", "mark_subjects", "free_subjects"],
)
def test_a_verb_that_a_running_job_waits_for_has_a_time_limit(verb: str) -> None:
    assert verb in SQL
    assert _TIMEOUTS[verb] == BUSY_SECONDS


def test_every_time_limit_is_of_a_statement() -> None:
    assert _TIMEOUTS.keys() <= SQL.keys()


# -- several hosts ---------------------------------------------------------------------------------


@asynccontextmanager
async def silent_host() -> AsyncIterator[int]:
    """A port that accepts connections and says nothing."""

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last host has all the time that is left, so that a slow machine can connect to it."""
    monkeypatch.setattr("rowlock.storage.postgres.connection.HOST_SECONDS", 0.1, raising=False)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("suffix", ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"])
async def test_a_silent_host_does_not_keep_us_from_the_next(postgres: PostgresServer, suffix: str) -> None:
    async with silent_host() as silent:
        hosts = f"127.0.0.1:{silent},127.0.0.1:{postgres.port}"
        connection = await _to_primary(f"postgresql://postgres@{hosts}/postgres{suffix}", timeout=30.0)
        assert await connection.fetchval("SHOW port") == str(postgres.port)
        await connection.close()


@pytest.mark.usefixtures("hasty")
async def test_silent_hosts_alone_time_out() -> None:
    async with silent_host() as one, silent_host() as other:
        with pytest.raises(TimeoutError):
            await _to_primary(f"postgresql://postgres@127.0.0.1:{one},127.0.0.1:{other}/postgres", timeout=0.3)


class Hosts:
    """Stands for the driver: what it says for each host, by what is wanted of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        monkeypatch.setattr(asyncpg, "connect", self._connect)

    async def _connect(self, dsn: str, *, timeout: float, target_session_attrs: str, host: str, port: int) -> str:
        self.asked.append((host, target_session_attrs))
        answer = self.answers[host]
        if isinstance(answer, BaseException):
            raise answer
        if target_session_attrs not in ("any", answer):
            raise asyncpg.TargetServerAttributeNotMatched("no")
        return host


@pytest.mark.parametrize(
    ("suffix", "answers", "chosen"),
    [
        ("", {"a": "standby", "b": "read-write"}, "b"),
        ("", {"a": asyncpg.CannotConnectNowError("starting up"), "b": "read-write"}, "b"),
        ("", {"a": ConnectionRefusedError(), "b": "standby"}, "b"),
        ("", {"a": "standby", "b": ConnectionRefusedError()}, "a"),
        ("", {"a": "standby", "b": "standby"}, "a"),
        ("?target_session_attrs=standby", {"a": "read-write", "b": "standby"}, "b"),
        ("?target_session_attrs=prefer-standby", {"a": "read-write", "b": "standby"}, "b"),
        ("?target_session_attrs=prefer-standby", {"a": "read-write", "b": TimeoutError()}, "a"),
    ],
)
async def test_the_first_host_that_is_what_is_wanted_is_used(
    monkeypatch: pytest.MonkeyPatch, suffix: str, answers: dict[str, Any], chosen: str
) -> None:
    Hosts(monkeypatch, **answers)
    found: Any = await _to_primary(f"postgresql://u@a,b/d{suffix}", timeout=5.0)
    assert found == chosen


async def test_a_host_that_did_not_answer_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(monkeypatch, a=TimeoutError(), b="standby")
    await _to_primary("postgresql://u@a,b/d", timeout=5.0)
    assert hosts.asked == [("a", "read-write"), ("b", "read-write"), ("b", "any")]


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://u:p@db/d", None),
        ("postgresql://u:p@/d?host=/run/pg", None),
        ("postgresql://u:p@a,b:6000/d", [("a", 5432), ("b", 6000)]),
        ("postgresql://[::1]:1,[::2]/d", [("::1", 1), ("::2", 5432)]),
        ("postgresql://%2Frun%2Fpg,b/d", [("/run/pg", 5432), ("b", 5432)]),
        ("postgresql:///d?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql:///d?host=/run/a,/run/b&port=7", [("/run/a", 7), ("/run/b", 7)]),
        ("postgresql://a,,b/d", None),  # the driver says what is wrong
    ],
)
def test_hosts_are_told_apart_as_the_driver_does(dsn: str, hosts: list[tuple[str, int]] | None) -> None:
    assert _hosts(dsn) == ([{}] if hosts is None else [{"host": host, "port": port} for host, port in hosts])


def test_hosts_and_what_is_wanted_of_them_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGHOST", "a,b"), ("PGPORT", "1,2"), ("PGTARGETSESSIONATTRS", "any")):
        monkeypatch.setenv(name, value)
    assert _hosts("postgresql:///d") == [{"host": "a", "port": 1}, {"host": "b", "port": 2}]
    assert _hosts("postgresql://c,d/d") == [{"host": "c", "port": 1}, {"host": "d", "port": 2}]
    assert _wanted("postgresql:///d") == ("any",)
    assert _wanted("postgresql:///d?target_session_attrs=standby") == ("standby",)

"""Job types by name."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from rowlock import Rowlock, SettingsError, UnknownJobType
from rowlock.jobs.registry import Registry, checked_name


@pytest.fixture
def app() -> Rowlock:
    return Rowlock("sqlite:///unused.db")


def nothing(job: Any) -> None: ...


def test_a_type_has_what_was_declared_and_the_settings_for_the_rest(app: Rowlock) -> None:
    app.queue("slow", visibility_seconds=600)
    app.limit("api", concurrency=1)
    app.job("plain")(nothing)
    app.job("other", queue="slow", priority=5, deadline_seconds=9, limit="api", batch=7)(nothing)
    plain, other = app.registry.require("plain"), app.registry.require("other")
    assert (plain.queue, plain.priority, plain.retry.max_attempts, plain.visibility_ms) == ("default", 100, 5, 30_000)
    assert (plain.deadline_seconds, plain.batch, plain.unique, plain.limit, plain.is_async) == (None,) * 4 + (False,)
    assert (other.queue, other.priority, other.visibility_ms) == ("slow", 5, 600_000)
    assert (other.deadline_seconds, other.limit, other.batch) == (9, "api", 7)
    assert [declared.name for declared in app.registry] == ["plain", "other"]


def test_async_is_seen_through_partials_and_methods(app: Rowlock) -> None:
    class Sender:
        async def send(self, job: Any) -> None: ...

    async def send(job: Any, to: str) -> None: ...

    app.job("method")(Sender().send)
    app.job("partial")(functools.partial(send, to="Ann"))
    assert [declared.is_async for declared in app.registry] == [True, True]


def test_an_unknown_type_is_named_with_the_known_ones(app: Rowlock) -> None:
    with pytest.raises(UnknownJobType, match="'x'; known: none"):
        Registry().require("x")
    app.job("import.customers")(nothing)
    app.job("zebra")(nothing)
    with pytest.raises(UnknownJobType, match=r"did you mean 'import\.customers'\?"):
        app.registry.require("import.custmers")
    with pytest.raises(UnknownJobType, match=r"known: import\.customers, zebra"):
        app.registry.require("q")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00b", "\ud800", None, 7], ids=repr)
def test_a_name_is_1_to_200_printable_characters(app: Rowlock, name: Any) -> None:
    with pytest.raises(SettingsError, match="1 to 200 printable"):
        checked_name(name, "queue")
    with pytest.raises(SettingsError):
        app.job(name)(nothing)
    assert checked_name("x" * 200, "queue") == "x" * 200
    assert checked_name("größe ✓", "queue") == "größe ✓"


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 32_768},
        {"priority": -32_769},
        {"deadline_seconds": 0},
        {"deadline_seconds": -1},
        {"visibility_seconds": 0},
        {"visibility_seconds": -5},
        {"queue": "x" * 201},
        {"batch": 0},
        {"batch": 10_001},
        {"limit": "undeclared"},
        {"limit_by": "company"},
    ],
    ids=repr,
)
def test_a_declaration_out_of_its_limits_is_refused_by_name(app: Rowlock, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(SettingsError, match=name.removesuffix("_seconds")):
        app.job("t", **wrong)(nothing)

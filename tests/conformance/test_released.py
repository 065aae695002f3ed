"""Released migrations and functions are frozen: an older release relies on them."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from conformance.released import SIGNATURE, STORES, Schema, broken_promises, ours, released
from rowlock.storage.migrate import functions, migrations

POSTGRES = files("rowlock.storage") / "sql" / "postgres"


@pytest.mark.parametrize("store", STORES)
def test_nothing_that_was_released_has_changed(store: str) -> None:
    assert list(broken_promises(released(store), ours(store))) == []


THEN = Schema({"0001_jobs": "a", "0002_queues": "b"}, 3, "c", {"claim": "(_queue text) RETURNS text"})


@pytest.mark.parametrize(
    "now",
    [
        replace(THEN),
        replace(THEN, migrations={**THEN.migrations, "0003_later": "d"}),
        replace(THEN, version=4, functions="e"),
        replace(THEN, version=4, functions="e", signatures={**THEN.signatures, "claim_jobs": "()"}),
        replace(THEN, version=5, functions="e", signatures={}),
    ],
    ids=["nothing", "a migration", "a function's text", "a function", "a function removed"],
)
def test_a_later_release_may_change(now: Schema) -> None:
    assert list(broken_promises(THEN, now)) == []


@pytest.mark.parametrize(
    ("now", "complaint"),
    [
        (replace(THEN, migrations={**THEN.migrations, "0002_queues": "edited"}), "0002_queues was edited"),
        (replace(THEN, migrations={"0001_jobs": "a"}), "0002_queues is gone"),
        (replace(THEN, migrations={"0002_queues": "b", "0001_jobs": "a"}), "order"),
        (replace(THEN, functions="edited"), "raise it in version.sql"),
        (replace(THEN, version=2), "version 3 of the functions was released"),
        (replace(THEN, version=4, signatures={"claim": "(_queue text, _n integer)"}), "claim has other arguments"),
    ],
    ids=["edited", "gone", "reordered", "functions edited", "functions of an older version", "signature"],
)
def test_a_change_of_what_was_released_is_noticed(now: Schema, complaint: str) -> None:
    assert complaint in "\n".join(broken_promises(THEN, now))


@pytest.mark.parametrize("store", STORES)
def test_an_edited_migration_of_this_release_is_noticed(store: str) -> None:
    then = ours(store)
    first = next(iter(then.migrations))
    edited = replace(then, migrations={**then.migrations, first: "0" * 64})
    assert list(broken_promises(edited, then)) == [f"migration {first} was edited: undo it and add a new one"]


def test_each_function_is_in_a_file_of_its_name() -> None:
    texts = {entry.name: entry.read_text() for entry in (POSTGRES / "functions").iterdir()}
    assert "version: " in texts.pop("version.sql")
    for name, text in texts.items():
        assert [f"{found}.sql" for found, _ in SIGNATURE.findall(text)] == [name]
        assert len(re.findall(r"^(CREATE|ALTER|DROP) ", text, re.MULTILINE)) == 1, name
    assert len(texts) == len(ours("postgres").signatures) > 10
    assert not [each.label for each in migrations("postgres") if "CREATE FUNCTION" in each.sql]


def test_the_text_of_every_function_counts() -> None:
    checksum = functions("postgres").checksum
    for name in ours("postgres").signatures:
        text = (POSTGRES / "functions" / f"{name}.sql").read_text()
        assert text in functions("postgres").sql
    assert replace(functions("postgres"), sql=functions("postgres").sql + " ").checksum != checksum

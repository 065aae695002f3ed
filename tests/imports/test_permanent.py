"""Errors that a retry cannot fix fail an import immediately, with advice."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import asyncpg
import polars as pl
import pytest

from conformance.stores import Rig
from imports.conftest import CHECKED, Customer, MakeOffice, Office, customers_csv, error_of
from rowlock import Importer, Rowlock, Run
from rowlock.errors import ImportFault
from rowlock.imports.run import in_hook
from rowlock.storage.imports import ImportRecord, ImportStatus

FILE = customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "2")])
HOOKS = ("prepare", "parse", "enrich", "load", "finish")


def mistaken(hook: str, mistake: Callable[[Run], object]) -> Callable[[Rowlock], object]:
    async def broken(self: Importer, *given: Any) -> Any:
        found = mistake(given[-1])
        return await found if hasattr(found, "__await__") else found

    hooks = type("Hooks", (Importer,), {hook: broken})

    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers")(hooks)

    return declare


async def attempts(office: Office) -> list[int]:
    """Those of the jobs that have failed."""
    return [job.attempts for job in (await office.app.jobs(status="failed")).jobs]


async def fails_at_once(office: Office, **about: Any) -> tuple[ImportRecord, str]:
    record = await office.run(FILE, **about)  # which raises where a job waits for another attempt
    assert record.status is ImportStatus.FAILED
    assert set(await attempts(office)) <= {1}
    return record, str(error_of(record)["message"])


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_mistake_in_a_hook(make_office: MakeOffice, hook: str) -> None:
    office = await make_office(mistaken(hook, lambda run: {}["no such key"]))
    _, message = await fails_at_once(office)
    assert f"{hook}() failed: KeyError: 'no such key'; correct it, restart the workers and resume" in message


@pytest.mark.parametrize("mistake", [pl.exceptions.ColumnNotFoundError("credits"), TypeError("no"), ValueError("no")])
def test_mistakes_of_many_kinds(mistake: Exception) -> None:
    class Hooks(Importer):
        async def enrich(self, frame: Any, run: Run) -> Any: ...

    run: Any = SimpleNamespace(type="customers", _declared=SimpleNamespace(importer=Hooks()))
    with pytest.raises(ImportFault, match=rf"enrich\(\) failed: {type(mistake).__name__}: "), in_hook(run, "enrich"):
        raise mistake
    with pytest.raises(type(mistake)), in_hook(run, "finish"):  # it is not the hook's, which this importer lacks
        raise mistake


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (asyncpg.UniqueViolationError("another has just added it"), asyncpg.UniqueViolationError),
        (asyncpg.DuplicateTableError("another has just made it"), asyncpg.DuplicateTableError),
        (asyncpg.CheckViolationError("no"), ImportFault),
    ],
)
def test_a_hook_that_another_was_quicker_than_is_tried_again(error: Exception, raised: type[Exception]) -> None:
    class Hooks(Importer):
        async def prepare(self, run: Run) -> None: ...

    run: Any = SimpleNamespace(type="customers", _declared=SimpleNamespace(importer=Hooks()))
    with pytest.raises(raised), in_hook(run, "prepare"):
        raise error


@pytest.mark.every_store
@pytest.mark.parametrize("hook", ["prepare", "enrich"])
async def test_a_statement_of_a_hook_that_the_store_refuses(make_office: MakeOffice, rig: Rig, hook: str) -> None:
    refused: Any = "SELECT nothing FROM no_such_table" if rig.relational else {"find": "people", "no_such_option": 1}
    office = await make_office(mistaken(hook, lambda run: run.fetch(refused)))
    _, message = await fails_at_once(office)
    assert "correct" in message


async def test_what_may_go_away_is_tried_again(make_office: MakeOffice) -> None:
    def fail(run: Run) -> None:
        raise ConnectionResetError("the price service is away")

    office = await make_office(mistaken("enrich", fail))
    import_id = await office.add(FILE)
    await office.work()
    assert (await office.app.imports.get(import_id)).status is ImportStatus.RUNNING
    assert await attempts(office) == []


@pytest.mark.every_store
@pytest.mark.relational
@pytest.mark.parametrize(
    ("policy", "reference"),
    [("partial", ""), ("all_or_nothing", "ON DELETE RESTRICT"), ("partial", "DEFERRABLE INITIALLY DEFERRED")],
)
async def test_rows_that_are_referred_to_cannot_be_replaced(
    make_office: MakeOffice, policy: str, reference: str
) -> None:
    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers", mode="replace", policy=policy)

    office = await make_office(declare)
    await office.execute(*CHECKED)
    await office.execute("INSERT INTO customers (email) VALUES ('old@x.org')")
    await office.execute("DROP TABLE IF EXISTS odd")
    await office.execute(f"CREATE TABLE odd (whose VARCHAR(100) REFERENCES customers (email) {reference})")
    await office.execute("INSERT INTO odd VALUES ('old@x.org')")
    _, message = await fails_at_once(office)
    assert "other rows refer to them" in message
    assert "or import with mode='upsert'" in message
    if "DEFERRED" in reference:
        assert " of odd)" in message  # its rule, or its foreign key
    assert await office.table("email") == [("old@x.org",)]
    await office.execute("DROP TABLE odd")


@pytest.mark.every_store
@pytest.mark.relational
async def test_rows_that_are_referred_to_are_replaced_if_the_reference_is_checked_at_the_end(
    make_office: MakeOffice,
) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", mode="replace")
    )
    await office.execute(*CHECKED)
    await office.execute("INSERT INTO customers (email, name) VALUES ('a@x.org', 'Old')")
    await office.execute("DROP TABLE IF EXISTS odd")
    await office.execute(
        "CREATE TABLE odd (whose VARCHAR(100) REFERENCES customers (email) DEFERRABLE INITIALLY DEFERRED)"
    )
    await office.execute("INSERT INTO odd VALUES ('a@x.org')")
    record = await office.run(FILE)
    assert record.status is ImportStatus.SUCCEEDED, record
    assert sorted(await office.table("email", "name")) == [("a@x.org", "Ann"), ("b@x.org", "Bob")]
    await office.execute("DROP TABLE odd")


@pytest.mark.every_store
async def test_a_table_that_goes_away_between_two_steps(make_office: MakeOffice, rig: Rig) -> None:
    def drop(run: Run) -> object:
        return run.execute("DROP TABLE customers" if rig.relational else {"drop": "customers"})

    _, message = await fails_at_once(await make_office(mistaken("prepare", drop)))
    assert "customers" in message


@pytest.mark.every_store
@pytest.mark.relational
async def test_a_generated_column_is_named_as_one(office: Office) -> None:
    await office.execute(
        "CREATE TABLE customers (email VARCHAR(100) PRIMARY KEY, name VARCHAR(100), credit NUMERIC, since DATE,"
        " active BOOLEAN GENERATED ALWAYS AS (TRUE) STORED)"
    )
    _, message = await fails_at_once(office)
    assert message.endswith("column 'active' is generated by the database: leave it out of the importer's columns")

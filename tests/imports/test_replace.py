"""`replace`: existing rows stay until their replacement is loaded, on every store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imports.conftest import CHECKED, Customer, MakeOffice, customers_csv, error_of, told
from rowlock import Rowlock
from rowlock.storage.imports import ImportStatus

OLD = customers_csv([(f"old{n}@x.org", "Old", "1") for n in range(20)])


def replacing(policy: str = "partial") -> Callable[[Rowlock], object]:
    return lambda app: app.importer(
        "customers", row=Customer, key=["email"], into="customers", mode="replace", policy=policy
    )


@pytest.mark.parametrize("policy", ["partial", "all_or_nothing"])
async def test_a_file_without_a_good_row_replaces_nothing(make_office: MakeOffice, policy: str) -> None:
    office = await make_office(replacing(policy))
    await office.run(OLD)
    record = await office.run(customers_csv([("nobody", "N", "1"), ("b@x.org", "B", "many")]))

    assert record.status is ImportStatus.FAILED
    assert record.counts.invalid == record.counts.rows == 2
    assert await office.column("name") == ["Old"] * 20


async def test_a_file_whose_rows_the_table_refuses_replaces_nothing(make_office: MakeOffice) -> None:
    office = await make_office(replacing())
    await office.execute(*CHECKED)
    await office.run(OLD)
    record = await office.run(customers_csv([("a@x.org", "Evil", "1"), ("b@x.org", "Evil", "1")]))

    assert error_of(record)["code"] == "no_valid_rows"
    assert record.counts.invalid == 2
    assert await office.column("name") == ["Old"] * 20


async def test_rows_that_the_table_refuses_are_named_with_their_cells_and_harm_no_others(
    make_office: MakeOffice,
) -> None:
    office = await make_office(replacing(), import_chunk_bytes=1_024)
    await office.execute(*CHECKED)
    await office.run(OLD)
    rows = [(f"new{n}@x.org", "Evil" if n % 10 == 3 else "New", "1") for n in range(100)]
    record = await office.run(customers_csv(rows))

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (100, 90, 0, 0, 0, 10)
    assert await office.column("name") == ["New"] * 90
    errors = await office.errors(record.id)
    assert [bad.row for bad in errors] == [5 + 10 * n for n in range(10)]
    assert list(errors[0].cells) == ["new3@x.org", "Evil", "1"]


async def test_a_row_takes_the_place_of_the_one_with_its_key(make_office: MakeOffice) -> None:
    office = await make_office(replacing())
    await office.run(OLD)
    record = await office.run(customers_csv([("old3@x.org", "New", "2"), ("new@x.org", "New", "2")]))

    assert told(record) == (2, 2, 0, 0, 0, 0)
    assert await office.table("email", "name") == [("new@x.org", "New"), ("old3@x.org", "New")]

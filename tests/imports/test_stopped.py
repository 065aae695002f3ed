"""An import that stops after too many errors reports them, and the number of rows."""

from __future__ import annotations

import pytest

from imports.conftest import Customer, MakeOffice, customers_csv
from rowlock import Rowlock
from rowlock.management import ManagementService

BAD = [("bad", "B", "1")] * 6
GOOD = [(f"{n}@x.org", f"N{n}", "1") for n in range(20)]


@pytest.mark.every_store
@pytest.mark.parametrize("policy", ["partial", "all_or_nothing"])
async def test_too_many_errors_are_counted_and_listed(make_office: MakeOffice, policy: str) -> None:
    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers", errors_max=3, policy=policy)

    office = await make_office(declare)
    record = await office.run(customers_csv([*GOOD, *BAD]))
    management = ManagementService(office.app)
    told = await management.import_job(record.id)

    assert (told.status, told.error_json["code"]) == ("FAILED", "too_many_errors")
    summary = told.summary
    assert (summary.failed, summary.error_count, summary.inserted) == (6, 6, 0)
    assert summary.total_rows == (26 if policy == "all_or_nothing" else 6)
    assert summary.error_groups[0].count == 6
    assert [error.row for error in summary.errors] == list(range(22, 28))
    assert "stopped" not in told.error_json
    first = await management.import_errors(record.id, limit=4)
    rest = await management.import_errors(record.id, after_row=first.next_row, limit=4)
    assert [error.row for error in first.errors + rest.errors] == list(range(22, 28))
    assert rest.next_row is None
    report = b"".join([part async for part in management.import_errors_csv(record.id)]).decode()
    assert report.count('"bad","B","1"') == 6


@pytest.mark.every_store
async def test_all_or_nothing_that_fails_tells_how_many_rows_the_file_has(make_office: MakeOffice) -> None:
    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers", policy="all_or_nothing")

    office = await make_office(declare)
    record = await office.run(customers_csv([*GOOD, *BAD[:2]]))
    summary = (await ManagementService(office.app).import_job(record.id)).summary

    assert (summary.total_rows, summary.failed, summary.inserted, summary.error_count) == (22, 2, 0, 2)


@pytest.mark.every_store
async def test_what_is_kept_of_wide_rows_is_bounded_and_says_so(make_office: MakeOffice) -> None:
    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers", errors_max=3)

    office = await make_office(declare)
    more = [f"more{n}" for n in range(100)]
    rows = [["bad", "B", "1", *(f"{row}-{n}".ljust(300, "x") for n in range(100))] for row in range(120)]
    record = await office.run("\n".join(",".join(row) for row in [["email", "name", "age", *more], *rows]))
    assert record.error is not None
    assert 100_000 < len(record.error) < 256 * 1024
    management = ManagementService(office.app)
    summary = (await management.import_job(record.id)).summary
    assert (summary.failed, summary.error_count) == (120, 120)
    listed = (await management.import_error_rows(record.id)).rows
    assert [row.row for row in listed] == list(range(2, 102))
    whole = [row for row in listed if row.cells]
    assert 0 < len(whole) < 10
    assert listed[: len(whole)] == whole, "the first ones"
    assert all(row.errors for row in listed)
    assert record.message is not None
    assert "of 120 rows with errors in its last chunk, 100 are listed" in record.message
    assert f"{100 - len(whole)} of the rows are listed without their cells" in record.message


@pytest.mark.every_store
async def test_a_row_that_is_too_wide_on_its_own_is_listed_without_its_cells(make_office: MakeOffice) -> None:
    def declare(app: Rowlock) -> None:
        app.importer("customers", row=Customer, key=["email"], into="customers", errors_max=0)

    office = await make_office(declare)
    more = [f"more{n}" for n in range(900)]
    rows = [["bad", "B", "1", *("x" * 250 for _ in more)], ["bad", "B", "1", *("" for _ in more)]]
    record = await office.run("\n".join(",".join(row) for row in [["email", "name", "age", *more], *rows]))
    listed = (await ManagementService(office.app).import_error_rows(record.id)).rows
    assert [(row.row, list(row.cells)) for row in listed] == [(2, []), (3, [])]
    report = b"".join([part async for part in ManagementService(office.app).import_errors_csv(record.id)]).decode()
    assert len(report.splitlines()) == 3

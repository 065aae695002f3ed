"""A whole import: good rows are in the table, each bad cell is reported, and every row is counted."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar

import orjson
import polars as pl
import pytest
from pydantic import AfterValidator, BaseModel, Field

from conformance.stores import Rig
from conformance.tables import DATE, INTEGER, TEXT, collection, or_null
from imports.conftest import CHECKED, Customer, MakeOffice, Office, customers_csv, error_of, told
from imports.files import stored_files
from rowlock import FileRefused, Importer, Loaded, Rowlock, Run
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportStatus


async def test_good_rows_are_loaded_and_bad_cells_are_named(office: Office) -> None:
    record = await office.run(
        customers_csv([("a@x.org", "Ann", "12.50"), ("no address", "", "12,5"), ("c@x.org", "Cid", "")])
    )

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (3, 2, 0, 0, 0, 1)
    assert await office.table() == [("a@x.org", "Ann", "12.50"), ("c@x.org", "Cid", "0.00")]
    (bad,) = await office.errors(record.id)
    assert bad.row == 3
    assert [(error.column, error.value) for error in bad.errors] == [
        ("E-mail", "no address"),
        ("Name", ""),
        ("Credit", "12,5"),
    ]
    assert list(bad.cells) == ["no address", "", "12,5"]


async def test_progress_is_100_and_files_are_gone_when_it_succeeded(office: Office) -> None:
    record = await office.run(customers_csv([("a@x.org", "Ann", "1")]))

    assert (record.progress, record.completed_chunks, record.total_chunks) == (100, 1, 1)
    assert record.cleaned_at is not None
    assert stored_files(office.folder / "store") == []


async def test_the_same_rows_again_change_nothing(office: Office) -> None:
    rows = [(f"{n}@x.org", f"N{n}", f"{n}.5") for n in range(50)]
    await office.run(customers_csv(rows))
    again = await office.run(customers_csv(rows), force=True)

    assert told(again) == (50, 0, 0, 50, 0, 0)


async def test_a_key_written_otherwise_is_the_same_key(office: Office) -> None:
    await office.run(customers_csv([("Ann@X.org", "Ann", "1")]))
    again = await office.run(customers_csv([(" ann@x.ORG ", "Ann", "1.00")]))

    assert told(again) == (1, 0, 0, 1, 0, 0)


async def test_changed_rows_are_updated_and_new_ones_inserted(office: Office) -> None:
    await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "2")]))
    again = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Ben", "2"), ("c@x.org", "Cid", "3")]))

    assert told(again) == (3, 1, 1, 1, 0, 0)
    assert [name for _, name in await office.table("email", "name")] == ["Ann", "Ben", "Cid"]


async def test_the_last_row_of_a_key_wins_over_all_chunks(make_office: MakeOffice) -> None:
    office = await make_office(import_chunk_bytes=2_000)
    rows = [(f"{'User' if n % 2 else 'USER'}{n % 100}@x.org", f"N{n}", str(n)) for n in range(1_000)]
    record = await office.run(customers_csv(rows))

    assert (record.total_chunks or 0) > 3
    assert told(record) == (1_000, 100, 0, 0, 900, 0)
    names = await office.table("email", "name")
    assert dict(names) == {f"user{n % 100}@x.org": f"N{n}" for n in range(900, 1_000)}


async def test_duplicates_may_be_errors_that_name_each_other(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", duplicates="error")
    )
    record = await office.run(customers_csv([("a@x.org", "A", 1), ("b@x.org", "B", 1), ("A@x.org", "C", 1)]))

    assert told(record) == (3, 1, 0, 0, 0, 2)
    found = await office.errors(record.id)
    assert [(bad.row, bad.errors[0].code) for bad in found] == [(2, "duplicate_key"), (4, "duplicate_key")]
    assert "row 4" in found[0].errors[0].reason


async def test_records_that_cannot_be_read_cost_themselves(office: Office) -> None:
    text = 'E-mail,Name,Credit\na@x.org,Ann,1\nb@x.org,Bob,1,too,many\nc@x.org,"Cid,1\nd@x.org,Dan,1\n'
    record = await office.run(text)

    assert told(record) == (4, 2, 0, 0, 0, 2)
    assert [(bad.row, bad.errors[0].code) for bad in await office.errors(record.id)] == [
        (3, "too_many_cells"),
        (4, "unclosed_quote"),
    ]


async def test_a_file_without_a_required_column_is_refused_with_what_was_found(office: Office) -> None:
    record = await office.run("Emial,Name\na@x.org,Ann\n")

    assert record.status is ImportStatus.FAILED
    error = error_of(record)
    assert error["code"] == "missing_columns"
    assert "Emial" in error["message"]
    async with office.app.store.transaction() as transaction:
        assert await transaction.table("customers") is None


async def test_a_file_of_header_only_is_refused(office: Office) -> None:
    record = await office.run("E-mail,Name\n")

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "empty_file")


async def test_a_table_that_does_not_fit_is_reported_before_anything_runs(office: Office) -> None:
    fields = {"email": or_null(TEXT), "name": or_null(INTEGER), "since": or_null(DATE), "needed": TEXT}
    await office.execute(
        "CREATE TABLE customers (email TEXT, name INTEGER, since DATE, needed TEXT NOT NULL)",
        *collection("customers", fields),
    )
    record = await office.run(customers_csv([("a@x.org", "Ann", "1")]))

    error = error_of(record)
    assert error["code"] == "table_mismatch"
    for part in ("'credit'", "'name'", "'needed'", "unique index on (email)"):
        assert part in error["message"]


async def test_the_same_file_is_a_duplicate_unless_forced(office: Office) -> None:
    from rowlock import DuplicateImport

    first = await office.run(customers_csv([("a@x.org", "Ann", "1")]))
    with pytest.raises(DuplicateImport) as refused:
        await office.add(customers_csv([("a@x.org", "Ann", "1")]))

    assert refused.value.existing_import_id == first.id
    assert stored_files(office.folder / "store") == []


async def test_a_dry_run_tells_what_would_change_and_changes_nothing(office: Office) -> None:
    await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "2")]))
    before = await office.table()
    file = customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Ben", "2"), ("c@x.org", "Cid", "3"), ("bad", "B", "1")])
    record = await office.run(file, dry_run=True)

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (4, 1, 1, 1, 0, 1)
    assert await office.table() == before
    result = orjson.loads(record.result or "{}")
    assert result["dryRun"] is True
    assert result["changed"] == {"name": 1}
    assert [change["row"] for change in result["sample"]] == [3, 4]
    assert result["sample"][0]["before"]["name"] == "Bob"
    assert result["sample"][0]["after"]["name"] == "Ben"
    assert told(await office.run(file)) == (4, 1, 1, 1, 0, 1)


async def test_insert_mode_reports_keys_that_exist(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", mode="insert")
    )
    await office.run(customers_csv([("a@x.org", "Ann", "1")]))
    record = await office.run(customers_csv([("a@x.org", "Other", "1"), ("b@x.org", "Bob", "1")]))

    assert told(record) == (2, 1, 0, 0, 0, 1)
    (bad,) = await office.errors(record.id)
    assert (bad.row, bad.errors[0].code) == (2, "key_exists")


async def test_replace_leaves_exactly_the_rows_of_the_file(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", mode="replace"),
        import_chunk_bytes=2_000,
    )
    await office.run(customers_csv([(f"old{n}@x.org", "Old", "1") for n in range(200)]))
    record = await office.run(customers_csv([(f"new{n}@x.org", "New", "1") for n in range(150)]))

    assert told(record) == (150, 150, 0, 0, 0, 0)
    assert await office.column("name") == ["New"] * 150


async def test_replace_wipes_its_company_only(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer(
            "customers", row=Customer, key=["email"], into="customers", mode="replace", company="company_id"
        )
    )
    await office.run(customers_csv([("a@x.org", "Ann", "1")]), company_id="one")
    await office.run(customers_csv([("a@x.org", "Other", "1")]), company_id="two")
    await office.run(customers_csv([("b@x.org", "Bob", "1")]), company_id="one")

    rows = await office.table("company_id", "email")
    assert rows == [("one", "b@x.org"), ("two", "a@x.org")]


async def test_an_import_of_company_rows_must_name_one(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", company="company_id")
    )
    with pytest.raises(FileRefused) as refused:
        await office.add(customers_csv([("a@x.org", "Ann", "1")]))
    assert refused.value.code == "company_required"


async def test_all_or_nothing_loads_nothing_when_one_row_is_bad(make_office: MakeOffice) -> None:
    office = await make_office(_all_or_nothing, import_chunk_bytes=2_000)
    rows = [(f"{n}@x.org", f"N{n}", "1") for n in range(300)]
    record = await office.run(customers_csv([*rows, ("bad", "B", "1")]))

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "not_all_rows_valid")
    assert record.counts.invalid == 1
    assert await office.table() == []
    record = await office.run(customers_csv(rows))
    assert told(record) == (300, 300, 0, 0, 0, 0)
    assert len(await office.table()) == 300


async def test_all_or_nothing_holds_for_rows_that_the_database_refuses(make_office: MakeOffice) -> None:
    office = await make_office(_all_or_nothing)
    await office.execute(*CHECKED)
    record = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Evil", "1")]))

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "not_all_rows_valid"), record.error
    assert [(bad.row, bad.errors[0].code) for bad in await office.errors(record.id)] == [(3, "check")]
    assert await office.table() == []


def _all_or_nothing(app: Rowlock) -> None:
    app.importer("customers", row=Customer, key=["email"], into="customers", policy="all_or_nothing")


async def test_rows_that_the_database_refuses_are_reported_and_harm_no_others(office: Office) -> None:
    await office.execute(*CHECKED)
    record = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Evil", "1"), ("c@x.org", "C", "1")]))

    assert told(record) == (3, 2, 0, 0, 0, 1)
    assert [(bad.row, bad.errors[0].code) for bad in await office.errors(record.id)] == [(3, "check")]


async def test_it_stops_after_too_many_errors(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers", errors_max=10)
    )
    record = await office.run(customers_csv([("bad", "B", "1") for _ in range(50)]))

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "too_many_errors")


async def test_provenance_says_which_import_and_row_wrote_a_row(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer(
            "customers", row=Customer, key=["email"], into="customers", provenance=("import_id", "import_row")
        )
    )
    first = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "1")]))
    again = await office.run(customers_csv([("b@x.org", "Ben", "1"), ("a@x.org", "Ann", "1")]))

    assert told(again) == (2, 0, 1, 1, 0, 0)
    rows = await office.table("email", "import_id", "import_row")
    assert rows == [("a@x.org", first.id, 2), ("b@x.org", again.id, 2)]


class Hooked(Importer):
    """Hooks of every kind."""

    rig: ClassVar[Rig]

    async def prepare(self, run: Run) -> None:
        await run.execute(*self.rig.write_line("once"))
        run.values["greeting"] = "Dear "

    def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(pl.col("name").str.replace("Mr ", ""))

    async def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        assert self.rig.lines(await run.fetch(*self.rig.read_lines())) == ["once"]
        run.reject(frame.filter(pl.col("name") == "Nobody")["row"], "nobody is no customer", column="Name")
        return frame

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns((pl.lit(run.values["greeting"]) + pl.col("name")).alias("name"))

    async def load(self, frame: pl.DataFrame, run: Run) -> Loaded:
        return await run.load(frame)

    async def finish(self, run: Run) -> dict[str, Any]:
        return {"count": len(await run.fetch(*self.rig.read_all("customers")))}


async def test_every_step_has_its_hook(make_office: MakeOffice, rig: Rig, store: Store) -> None:
    await rig.make_ledger(store)
    hooked = type("Hooked", (Hooked,), {"rig": rig})
    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(hooked),
        import_chunk_bytes=1_024,
    )
    rows = [("a@x.org", "Mr Ann", "1"), ("b@x.org", "Nobody", "1"), *((f"{n}@x.org", "N", "1") for n in range(200))]
    record = await office.run(customers_csv(rows))

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert (record.total_chunks or 0) > 1
    assert told(record) == (202, 201, 0, 0, 0, 1)
    assert dict(await office.table("email", "name"))["a@x.org"] == "Dear Ann"
    assert await office.column("line", of="ledger") == ["once"]
    assert orjson.loads(record.result or "{}")["finish"] == {"count": 201}
    (bad,) = await office.errors(record.id)
    assert (bad.row, bad.errors[0].reason) == (3, "nobody is no customer")


async def test_a_hook_that_loses_rows_fails_the_import(make_office: MakeOffice) -> None:
    class Losing(Importer):
        def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.head(1)

    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(Losing)
    )
    record = await office.run(customers_csv([("a@x.org", "A", "1"), ("b@x.org", "B", "1")]))

    assert record.status is ImportStatus.FAILED
    assert "run.reject" in error_of(record)["message"]
    assert await office.table() == []


async def test_a_hook_that_changes_the_key_is_told_to_declare_the_partition(make_office: MakeOffice) -> None:
    class Changing(Importer):
        def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.with_columns(pl.col("email").str.replace("[0-9]+", ""))

    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(Changing),
        import_chunk_bytes=1_024,
    )
    record = await office.run(customers_csv([(f"a{n}@x.org", "A", "1") for n in range(200)]))

    assert "partition=" in error_of(record)["message"]


class Odd(BaseModel):
    """A key that only pydantic can tell."""

    code: Annotated[str, AfterValidator(lambda code: code[::-1].upper())]
    value: int = Field(ge=0)


async def test_keys_that_only_the_model_can_tell_meet_in_one_chunk(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("odd", row=Odd, key=["code"], into="odd"), import_chunk_bytes=1_024
    )
    rows = [(f"{'ab' if n % 3 else 'AB'}{n % 40}", n) for n in range(400)]
    record = await office.run(customers_csv(rows, ("code", "value")), "odd.csv", type="odd")

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert (record.total_chunks or 0) > 1
    assert told(record) == (400, 40, 0, 0, 360, 0)
    expected = {f"AB{n % 40}"[::-1]: n for n in range(360, 400)}
    assert dict(await office.table("code", "value", of="odd")) == expected


async def test_rows_without_a_key_are_split_by_lines_and_inserted(make_office: MakeOffice) -> None:
    office = await make_office(
        lambda app: app.importer("odd", row=Odd, into="odd", mode="insert"), import_chunk_bytes=1_024
    )
    rows = [("x", n) for n in range(1_000)]
    record = await office.run(customers_csv(rows, ("code", "value")), "odd.csv", type="odd")

    assert told(record) == (1_000, 1_000, 0, 0, 0, 0)
    assert (record.total_chunks or 0) > 3
    assert await office.column("value", of="odd") == list(range(1_000))


async def test_every_row_is_accounted_for_in_a_workbook_too(office: Office, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.title = "Data"
    sheet.append(["Customers of 2026"])
    sheet.append([])
    sheet.append(["E-mail", "Name", "Credit", "Since"])
    sheet.append(["a@x.org", "Ann", 12.5, Decimal(1)])
    sheet.append(["b@x.org", "Bob", "=1/0", None])
    sheet.append(["c@x.org", 42, 3, None])
    sheet["D4"] = "2026-01-31"
    path = tmp_path / "customers.xlsx"
    book.save(path)
    record = await office.run(path)

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert told(record) == (3, 2, 0, 0, 0, 1)
    (bad,) = await office.errors(record.id)
    assert (bad.row, bad.errors[0].column) == (5, "Credit")
    assert await office.table() == [("a@x.org", "Ann", "12.50"), ("c@x.org", "42", "3.00")]

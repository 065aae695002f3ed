"""Unusual actions of users and operators, and unusual files: nothing is lost, doubled or disclosed."""

from __future__ import annotations

import asyncio
import gzip
from datetime import date
from typing import Any

import polars as pl
import pytest
from pydantic import BaseModel, SecretStr

from conformance.stores import Rig
from conformance.tables import collection
from engine.running import soon
from imports.conftest import CHECKED, COLUMNS, Customer, MakeOffice, Office, customers_csv, error_of, told
from rowlock import Importer, Permanent, Rowlock, Run, SettingsError, Snooze, StoreError
from rowlock.ids import uuid7
from rowlock.imports.intake.intake import About, Intake
from rowlock.imports.load import chunk
from rowlock.imports.read.sandbox import Sandbox
from rowlock.management import ManagementService
from rowlock.storage.contract import Store
from rowlock.storage.imports import ImportStatus

TABLE = "email VARCHAR(100), name VARCHAR(100), credit NUMERIC, since DATE, active BOOLEAN"
SMALL_BYTES = 1_024


def declare(**options: Any) -> Any:
    """An importer of customers with these options."""
    return lambda app: app.importer("customers", **{"row": Customer, "key": ["email"], "into": "customers"} | options)


def people(count: int, name: str = "Ann") -> str:
    return customers_csv([(f"a{n}@x.org", name, "1") for n in range(count)])


# -- replacing -------------------------------------------------------------------------------------


async def test_replace_refuses_a_table_without_the_key_before_it_wipes(make_office: MakeOffice) -> None:
    office = await make_office(declare(mode="replace"))
    await office.execute(f"CREATE TABLE customers ({TABLE})", *collection("customers", COLUMNS))
    old = {"insert": "customers", "documents": [{"email": "old@x.org", "name": "Old"}]}
    await office.execute("INSERT INTO customers (email, name) VALUES ('old@x.org', 'Old')", old)
    record = await office.run(people(1))

    assert error_of(record)["code"] == "table_mismatch"
    assert await office.column("email") == ["old@x.org"]


async def test_an_older_replace_cannot_go_on_after_a_newer_one(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(declare(mode="replace"), import_chunk_bytes=SMALL_BYTES)
    load = chunk.load_chunk

    async def first_only(shop: Any, job: Any, record: Any, index: int) -> Any:
        if index > 0:
            raise Permanent("this chunk never works")
        return await load(shop, job, record, index)

    monkeypatch.setattr(chunk, "load_chunk", first_only)
    older = await office.run(people(200, "Older"))
    monkeypatch.setattr(chunk, "load_chunk", load)
    newer = await office.run(people(20, "Newer"))

    assert (older.status, newer.status) == (ImportStatus.FAILED, ImportStatus.SUCCEEDED)
    from rowlock import ImportNotResumable

    with pytest.raises(ImportNotResumable):
        await office.app.imports.resume(older.id)
    assert await office.column("name") == ["Newer"] * 20


def test_what_is_wiped_says_who_excludes_whom() -> None:
    app = Rowlock("sqlite:///nowhere.db")
    one = {"row": Customer, "key": ["email"], "mode": "replace"}
    app.importer("all", into="people", **one)
    app.importer("same", into="people", **one)
    app.importer("own", into="own", company="company_id", default_company="main", **one)
    app.importer("upsert", into="people", row=Customer, key=["email"])
    scope = {name: [found.scope(company) for company in (None, "a", "main")] for name, found in app.importers.items()}

    assert len(set(scope["all"])) == 1
    assert scope["all"] == scope["same"]
    assert scope["own"][0] == scope["own"][2] != scope["own"][1]
    assert scope["upsert"] == [None, None, None]


# -- hooks -----------------------------------------------------------------------------------------


async def test_rows_are_split_by_the_key_that_they_have_after_parse(make_office: MakeOffice) -> None:
    class Parsing(Importer):
        async def prepare(self, run: Run) -> None:
            run.values["prefix"] = "^x[0-9]+-"

        def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.with_columns(pl.col("email").str.replace(run.values["prefix"], ""))

    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(Parsing),
        import_chunk_bytes=SMALL_BYTES,
    )
    record = await office.run(customers_csv([(f"x{n}-u{n % 10}@x.org", f"N{n}", "1") for n in range(500)]))

    assert (record.total_chunks or 0) > 1
    assert told(record) == (500, 10, 0, 0, 490, 0)
    names = await office.table("email", "name")
    assert dict(names) == {f"u{n % 10}@x.org": f"N{n}" for n in range(490, 500)}


def test_a_field_cannot_be_called_as_the_number_of_the_row() -> None:
    class Bad(BaseModel):
        row: int

    with pytest.raises(SettingsError, match="'row'"):
        Rowlock("sqlite:///nowhere.db").importer("bad", row=Bad, into="bad", mode="insert")


# -- dry runs --------------------------------------------------------------------------------------


async def test_a_dry_run_of_a_first_import_creates_no_table(office: Office) -> None:
    record = await office.run(people(3), dry_run=True)

    assert told(record) == (3, 3, 0, 0, 0, 0)
    async with office.app.store.transaction() as transaction:
        assert await transaction.table("customers") is None


async def test_a_dry_run_of_replace_tells_what_replace_does(make_office: MakeOffice) -> None:
    office = await make_office(declare(mode="replace"))
    await office.run(people(2))
    rehearsed = await office.run(people(3), dry_run=True)

    assert len(await office.table()) == 2
    assert told(rehearsed) == told(await office.run(people(3))) == (3, 3, 0, 0, 0, 0)


# -- secrets ---------------------------------------------------------------------------------------


class Pin(BaseModel):
    code: str
    pin: SecretStr


async def test_secrets_are_in_no_error_and_no_sample(make_office: MakeOffice) -> None:
    office = await make_office(lambda app: app.importer("odd", row=Pin, key=["code"], into="odd"))
    await office.run("code,pin\na,CANARY1\n", "odd.csv", type="odd")
    file = "code,pin\na,CANARY2\nb,CANARY3,too,many\nc,\n"
    record = await office.run(file, "odd.csv", type="odd", dry_run=True)
    management = ManagementService(office.app, None)
    shown = (await management.import_job(record.id)).json_bytes()
    exported = b"".join([part async for part in management.import_errors_csv(record.id)])

    assert record.counts.invalid == 2
    assert b"[redacted]" in shown
    assert b"CANARY" not in shown + exported


# -- many of something -----------------------------------------------------------------------------


async def test_errors_beyond_the_first_are_counted_but_not_kept(make_office: MakeOffice) -> None:
    office = await make_office(import_chunk_bytes=SMALL_BYTES, import_errors_max=10)
    record = await office.run(customers_csv([(f"bad{n}", "B", "1") for n in range(500)]))

    assert record.error_count == 500
    assert [row.row for row in await office.errors(record.id)] == list(range(2, 12))


@pytest.mark.every_store
@pytest.mark.parametrize("end", ["stopped", "cancelled", "dead", "refused by the table"])
async def test_an_import_never_keeps_more_errors_than_that(make_office: MakeOffice, end: str) -> None:
    def broken(app: Rowlock) -> None:
        @app.importer("customers", row=Customer, key=["email"], into="customers")
        class Customers(Importer):
            async def enrich(self, frame: Any, run: Run) -> Any:
                if end == "cancelled" and run.chunk == 3:
                    await app.imports.cancel(run.id)
                return frame

            async def finish(self, run: Run) -> None:
                raise Permanent("the end")

    limits = {"stopped": declare(errors_max=100), "refused by the table": declare(policy="all_or_nothing")}
    office = await make_office(limits.get(end, broken), import_chunk_bytes=SMALL_BYTES, import_errors_max=10)
    if end == "refused by the table":
        await office.execute(*CHECKED)
        record = await office.run(customers_csv([(f"a{n}@x.org", "Evil", "1") for n in range(60)]))
    else:
        record = await office.run(customers_csv([(f"bad{n}", "B", "1") for n in range(500)]))
    assert record.status is ImportStatus.CANCELLED if end == "cancelled" else ImportStatus.FAILED
    assert record.error_count > 10
    kept = [row.row for row in await office.errors(record.id)]
    assert len(kept) == 10
    if end in ("dead", "refused by the table"):  # otherwise not all chunks are done
        assert kept == list(range(2, 12))


@pytest.mark.every_store
async def test_chunks_with_too_many_errors_do_not_get_in_each_others_way(make_office: MakeOffice) -> None:
    arrived = {0: asyncio.Event(), 1: asyncio.Event()}

    def meeting(app: Rowlock) -> None:
        @app.importer("customers", row=Customer, key=["email"], into="customers")
        class Customers(Importer):
            async def load(self, frame: Any, run: Run) -> Any:
                loaded = await super().load(frame, run)
                if app.store.url.startswith("mongodb") and run.chunk in arrived:  # they see the same errors
                    arrived[run.chunk].set()
                    await soon(arrived[1 - run.chunk].wait(), 10.0)
                return loaded

    office = await make_office(meeting, import_chunk_bytes=SMALL_BYTES, import_errors_max=10, import_concurrency=2)
    rows = [(f"a{n}@x.org", "Ann" if n % 3 else "", "1") for n in range(300)]
    record = await office.run(customers_csv([*rows, *((f"b{n}@x.org", "B", "1", "2", "3") for n in range(20))]))

    assert told(record) == (320, 200, 0, 0, 0, 120), record.error
    assert {job.attempts for job in (await office.app.jobs()).jobs} == {1}
    assert [row.row for row in await office.errors(record.id)] == list(range(2, 32, 3))


async def test_errors_that_a_chunk_cannot_trim_are_trimmed_by_the_cleanup(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(import_chunk_bytes=SMALL_BYTES, import_errors_max=10)
    asked = []

    async def trim_errors(import_id: str, keep: int) -> None:
        asked.append(keep)
        raise StoreError("not now")

    monkeypatch.setattr(office.app.store, "trim_errors", trim_errors)
    record = await office.run(customers_csv([(f"bad{n}", "B", "1") for n in range(100)]))

    assert record.status is ImportStatus.SUCCEEDED
    assert set(asked) == {10}
    assert [row.row for row in await office.errors(record.id)] == list(range(2, 12))


async def test_rows_of_one_key_name_a_few_of_each_other(make_office: MakeOffice) -> None:
    office = await make_office(declare(duplicates="error"))
    record = await office.run(customers_csv([("same@x.org", f"N{n}", "1") for n in range(500)]))
    reasons = [error.reason for row in await office.errors(record.id) for error in row.errors]

    assert len(reasons) == 500
    assert reasons[0] == "row 3, 4, 5, 6, 7 and 494 more has the same key"


async def test_a_file_with_more_text_than_expected_has_more_chunks(make_office: MakeOffice) -> None:
    office = await make_office(import_chunk_bytes=20_000)
    text = customers_csv([(f"{n}@x.org", "A" * 45, "1") for n in range(20_000)])
    record = await office.run(gzip.compress(text.encode(), 9), "customers.csv.gz")

    assert told(record) == (20_000, 20_000, 0, 0, 0, 0)
    assert (record.total_chunks or 0) > len(text) / 20_000 / 10


async def test_rows_without_their_key_are_spread(make_office: MakeOffice) -> None:
    office = await make_office(import_chunk_bytes=SMALL_BYTES)
    record = await office.run(customers_csv([("", f"N{n}", "1") for n in range(300)]))
    sizes = [made.planned_rows for made in await office.app.store.chunks(record.id) if made.index >= 0]

    assert told(record) == (300, 0, 0, 0, 0, 300)
    assert len(sizes) > 1
    assert max(sizes) < 200


@pytest.mark.parametrize("file", ["E-mail,Name\na@x.org,A\nb@x.org,B\0,x,y\n", "E-mail,Name,No\0te\na@x.org,A,1\n"])
async def test_a_nul_costs_no_file(office: Office, file: str) -> None:
    record = await office.run(file)

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert record.counts.inserted == 1


async def test_errors_of_unreadable_records_count_against_the_limit(make_office: MakeOffice) -> None:
    office = await make_office(declare(errors_max=3))
    record = await office.run("E-mail,Name\n" + "a@x.org,A,too,many\n" * 10)

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "too_many_errors")


async def test_a_staging_table_goes_with_the_files(make_office: MakeOffice) -> None:
    office = await make_office(declare(policy="all_or_nothing", errors_max=3), keep_import_file_days=0.0)
    record = await office.run(customers_csv([("bad", "B", "1") for _ in range(10)]))
    assert record.status is ImportStatus.FAILED
    await office.app.imports.clean()
    async with office.app.store.transaction() as transaction:
        assert await transaction.table(transaction.staging_table(record.id)) is None


# -- operators -------------------------------------------------------------------------------------


async def test_a_finish_job_that_nobody_planned_finishes_nothing(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(declare(policy="all_or_nothing"), import_chunk_bytes=SMALL_BYTES)
    load = chunk.load_chunk

    async def not_yet(shop: Any, job: Any, record: Any, index: int) -> Any:
        if index == 1:
            raise Snooze(3_600)
        return await load(shop, job, record, index)

    monkeypatch.setattr(chunk, "load_chunk", not_yet)
    import_id = await office.add(people(200), company_id="one")
    await office.work()
    forged = {"kind": "finish", "importJobId": import_id}
    await ManagementService(office.app, "other").enqueue(
        "rowlock.import", forged, queue=office.app.settings.import_queue
    )
    await office.work()

    assert (await office.app.imports.get(import_id)).status is ImportStatus.RUNNING
    assert await office.table() == []


async def test_an_old_finish_job_that_is_retried_after_a_resume_does_nothing(
    make_office: MakeOffice, rig: Rig, store: Store
) -> None:
    broken = [True]
    await rig.make_ledger(store)

    class Finishing(Importer):
        async def finish(self, run: Run) -> None:
            if broken:
                raise Permanent("not yet")
            await run.execute(*rig.write_line("finished"))

    office = await make_office(
        lambda app: app.importer("customers", row=Customer, key=["email"], into="customers")(Finishing)
    )
    record = await office.run(people(1))
    assert record.status is ImportStatus.FAILED
    (dead,) = (await office.app.jobs(status="failed")).jobs
    broken.clear()
    await office.app.imports.resume(record.id)
    await office.app.retry(dead.id)
    await office.work()

    assert (await office.app.imports.get(record.id)).status is ImportStatus.SUCCEEDED
    assert await office.column("line", of="ledger") == ["finished"]


async def test_an_attempt_that_was_superseded_does_not_end_a_resumed_import(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_id = await office.add(people(1))
    plan, begun = Sandbox.plan, []

    async def interrupted(self: Any, order: Any, seconds: float, note: Any) -> Any:
        if not begun:
            begun.append(True)
            for job_id in await office.app.store.cancel_import(import_id) or ():  # the worker has not heard of it yet
                await office.app.store.cancel(job_id)
            await office.app.imports.resume(import_id)
            await note(0.5)
        return await plan(self, order, seconds, note)

    monkeypatch.setattr(Sandbox, "plan", interrupted)
    await office.work()
    await office.app.imports.close()

    record = await office.app.imports.get(import_id)
    assert record.status is ImportStatus.SUCCEEDED, record.error


async def test_a_failed_chunk_is_done_again_when_the_import_is_resumed_and_no_other(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(import_chunk_bytes=SMALL_BYTES)
    load, done, others_done = chunk.load_chunk, list[int](), asyncio.Event()

    async def third_fails(shop: Any, job: Any, record: Any, index: int) -> Any:
        if index == 2 and 2 not in done:
            done.append(2)
            await others_done.wait()
            raise Permanent("out of order")
        loaded = await load(shop, job, record, index)
        done.append(index)
        if len(done) == record.total_chunks:
            others_done.set()
        return loaded

    monkeypatch.setattr(chunk, "load_chunk", third_fails)
    record = await office.run(people(300))
    assert (record.status, error_of(record)["chunk"]) == (ImportStatus.FAILED, 2)
    assert record.completed_chunks == (record.total_chunks or 0) - 1
    done[:] = [2]
    await office.app.imports.resume(record.id)
    await office.work()

    assert done == [2, 2]
    assert told(await office.app.imports.get(record.id)) == (300, 300, 0, 0, 0, 0)


# -- the way in ------------------------------------------------------------------------------------


async def test_the_same_request_twice_is_one_import(office: Office) -> None:
    (office.folder / "in").mkdir()
    (office.folder / "in" / "customers.csv").write_text(people(1))
    import_id = uuid7()
    for _ in range(2):
        added = await Intake(office.app).receive_named("customers.csv", About(type="customers"), import_id)
        assert added.record.id == import_id
    await office.work()

    assert (await office.app.imports.get(import_id)).status is ImportStatus.SUCCEEDED


async def test_a_request_that_is_cut_off_after_the_commit_loses_no_file(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = office.app.store.add_import

    async def late(new: Any, job: Any) -> Any:
        await add(new, job)
        raise asyncio.CancelledError

    monkeypatch.setattr(office.app.store, "add_import", late, raising=False)
    with pytest.raises(asyncio.CancelledError):
        await office.add(people(1))
    await office.work()

    (record,) = (await office.app.store.imports(type=None, company_id=None, status=None, limit=5)).imports
    assert record.status is ImportStatus.SUCCEEDED, record.error


# -- what the file does not say --------------------------------------------------------------------


async def test_columns_that_the_file_lacks_stay_as_they_are(office: Office) -> None:
    await office.run(customers_csv([("a@x.org", "Ann", "12.50"), ("b@x.org", "Bob", "1")]))
    record = await office.run("E-mail,Name\na@x.org,Anne\nb@x.org,Bob\nc@x.org,Cid\n")

    assert told(record) == (3, 1, 1, 1, 0, 0)
    assert await office.table() == [
        ("a@x.org", "Anne", "12.50"),
        ("b@x.org", "Bob", "1.00"),
        ("c@x.org", "Cid", "0.00"),
    ]


async def test_a_report_that_was_mended_comes_back_as_it_was_written(make_office: MakeOffice) -> None:
    office = await make_office()
    first = await office.run(customers_csv([("a@x.org", "=Ann", "x"), ("b@x.org", "-Bob", "1")]))
    exported = b"".join(
        [part async for part in ManagementService(office.app, None).import_errors_csv(first.id)]
    ).decode("utf-8-sig")
    assert "'=Ann" in exported
    again = await office.run(exported.replace('"x"', '"7"'))

    assert told(again) == (1, 1, 0, 0, 0, 0)
    assert await office.table("email", "name") == [("a@x.org", "=Ann"), ("b@x.org", "-Bob")]


async def test_a_year_that_python_lacks_costs_its_row_only(make_office: MakeOffice) -> None:
    class Dated(BaseModel):
        code: SecretStr
        value: date

    office = await make_office(lambda app: app.importer("odd", row=Dated, into="odd", mode="insert"))
    record = await office.run("code,value\na,0000-01-01\nb,2026-01-01\n", "odd.csv", type="odd")

    assert told(record) == (2, 1, 0, 0, 0, 1)


async def test_it_stops_before_the_rows_of_a_chunk_with_too_many_errors_are_loaded(make_office: MakeOffice) -> None:
    office = await make_office(declare(errors_max=5))
    record = await office.run(customers_csv([("a@x.org", "Ann", "1"), *(("bad", "B", "1") for _ in range(20))]))

    assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, "too_many_errors")
    assert error_of(record)["errors"][0]["row"] == 3
    assert await office.table() == []


async def test_an_import_type_may_have_a_queue_of_its_own(make_office: MakeOffice) -> None:
    office = await make_office(declare(queue="special"))
    record = await office.run(people(1))

    assert record.status is ImportStatus.SUCCEEDED
    assert "special" in office.app.engine.queues()


async def test_a_chunk_that_is_divided_into_many_needs_no_more_files_than_are_allowed(make_office: MakeOffice) -> None:
    office = await make_office(import_chunk_bytes=SMALL_BYTES, import_chunks_max=1)
    long = "x" * 330 + "@x.org"
    text = customers_csv([(f"{n}{long}", "A", "1") for n in range(20_000)])
    record = await office.run(gzip.compress(text.encode(), 1), "customers.csv.gz", dry_run=True)

    assert told(record) == (20_000, 20_000, 0, 0, 0, 0), record.error
    assert (record.total_chunks or 0) > 101  # what is kept free for one chunk

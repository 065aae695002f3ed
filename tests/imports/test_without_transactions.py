"""MongoDB without a replica set: imports load and count each row once; what cannot work is refused immediately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from conformance.stores import StandaloneRig
from imports.conftest import Customer, Office, customers_csv, error_of, told
from imports.files import stored_files
from mongo_server import MongoServer
from rowlock import FakeClock, FileRefused, Importer, ImportNotResumable, Job, LeaseLost, NoTransactions, Rowlock, Run
from rowlock.http.problem import problem_of
from rowlock.ids import uuid7
from rowlock.imports.intake.intake import About, Intake
from rowlock.imports.read import planner
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.read.sandbox import Sandbox
from rowlock.management import ManagementService
from rowlock.settings import load
from rowlock.storage.imports import ImportRecord, ImportStatus, ImportStep
from rowlock.storage.mongo.imports import import_steps
from rowlock.storage.mongo.imports.import_transaction import _Own
from rowlock.storage.mongo.loading import stepwise
from rowlock.storage.mongo.loading.intents import INTENTS, Intents
from rowlock.storage.mongo.loading.replace import RowIds
from rowlock.storage.mongo.loading.stepwise import Step
from rowlock.storage.tables import Column, Kind, Load, Mode

MakeOffice = Callable[..., Awaitable[Office]]

ROUNDS = 20
ROWS = 100
BATCH_ROWS = 7
PEOPLE = [(f"a{n}@x.org", f"N{n}", str(n)) for n in range(ROWS)]
FILE = customers_csv(PEOPLE)


@dataclass
class PatientOffice(Office):
    """One that waits for jobs that come again later."""

    clock: FakeClock

    async def run(self, content: str | bytes | Path, name: str = "customers.csv", **about: Any) -> ImportRecord:
        import_id = await self.add(content, name, **about)
        for _ in range(ROUNDS):
            await self.work()
            await self.app.imports.close()  # as the maintenance would
            if not (await self.app.jobs(status="queued")).jobs:
                break
            self.clock.advance(60)
        return await self.app.imports.get(import_id)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in this process: to start another takes longer than all the rest."""

    async def read(sandbox: Sandbox, order: Order, *_: Any) -> Found:
        return await asyncio.to_thread(planner.plan, order)

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(Sandbox, "plan", read)
    monkeypatch.setattr(Sandbox, "warm", nothing)
    monkeypatch.setattr(planner, "_say", lambda _: None)


@pytest.fixture
async def alone(standalone_mongo: MongoServer, tmp_path: Path, clock: FakeClock) -> AsyncIterator[StandaloneRig]:
    """An empty database on a server without a replica set."""
    rig = StandaloneRig(tmp_path, standalone_mongo)
    await rig.make(clock)
    for name in ("customers", INTENTS):
        rig.database.drop_collection(name)
    yield rig
    await rig.dispose()


@pytest.fixture
async def make_office(alone: StandaloneRig, tmp_path: Path, clock: FakeClock) -> AsyncIterator[MakeOffice]:
    made: list[Rowlock] = []

    async def make(importer: type[Importer] | None = None, **options: Any) -> Office:
        settings = load(database_url=alone.url, import_store=str(tmp_path / "store"), backoff_base_seconds=0)
        app = Rowlock(settings=settings, clock=clock)
        made.append(app)
        declare = app.importer("customers", **{"row": Customer, "key": ["email"], "into": "customers"} | options)
        if importer is not None:
            declare(importer)
        return PatientOffice(app, tmp_path, clock)

    yield make
    for app in made:
        await app.close()


def people(alone: StandaloneRig) -> list[tuple[Any, ...]]:
    found = alone.database["customers"].find().sort("email")
    return [(each["email"], each["name"], str(each["credit"])) for each in found]


EXPECTED = sorted((email, name, f"{credit}.00") for email, name, credit in PEOPLE)


# -- what works --------------------------------------------------------------------------------------


async def test_an_import_inserts_updates_and_leaves_alone_what_is_there(
    make_office: MakeOffice, alone: StandaloneRig
) -> None:
    office = await make_office()
    first = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "2"), ("no", "", "x")]))
    again = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Ben", "2"), ("c@x.org", "Cid", "3")]))

    assert (first.status, told(first)) == (ImportStatus.SUCCEEDED, (3, 2, 0, 0, 0, 1))
    assert told(again) == (3, 1, 1, 1, 0, 0)
    assert [name for _, name, _ in people(alone)] == ["Ann", "Ben", "Cid"]
    assert list(alone.database[INTENTS].find()) == []
    assert alone.database["jobs"].count_documents({"status": {"$ne": "succeeded"}}) == 0


async def test_its_notes_say_what_is_weaker(make_office: MakeOffice) -> None:
    office = await make_office()
    record = await office.run(FILE)

    (notice,) = (await ManagementService(office.app).import_job(record.id)).meta_json["notices"]
    assert "without transactions" in notice


async def test_replace_and_a_dry_run_of_it(make_office: MakeOffice, alone: StandaloneRig) -> None:
    office = await make_office(mode="replace")
    await office.run(customers_csv([("old@x.org", "Old", "1")]))
    dry = await office.run(FILE, dry_run=True)
    assert orjson.loads(dry.result or "")["wouldDelete"] == 1
    assert [email for email, *_ in people(alone)] == ["old@x.org"]
    record = await office.run(FILE)

    assert told(record) == (ROWS, ROWS, 0, 0, 0, 0)
    assert people(alone) == EXPECTED


async def test_a_large_enqueue_many_needs_no_transaction(make_office: MakeOffice) -> None:
    office = await make_office()
    office.app.job("a")(lambda job: None)
    receipts = await office.app.enqueue_many([("a", {})] * 1_200)

    assert len({receipt.job_id for receipt in receipts}) == 1_200


# -- attempts that die -------------------------------------------------------------------------------


class Died(Exception):
    """Stands for the end of the process: nothing that comes after it in this attempt is done."""


def die(
    patch: pytest.MonkeyPatch, owner: Any, verb: str, at: int = 1, such: Callable[..., bool] = lambda *_: True
) -> list[int]:
    """Let the attempt die at the call of this number that is `such`, before anything of it is done; the calls."""
    found, calls = getattr(owner, verb), list[int]()

    async def call(*args: Any, **options: Any) -> Any:
        if such(*args):
            calls.append(len(calls) + 1)
            if len(calls) == at:
                raise Died
        return await found(*args, **options)

    patch.setattr(owner, verb, call)
    return calls


def says(field: str) -> Callable[..., bool]:
    """Whether a change of an import sets this field."""
    return lambda own, scope, found, change: field in change["$set"]


PLACES = {
    "nothing of the plan is recorded": (Step, "plan_import", 1, lambda *_: True),
    "the plan is not committed": (_Own, "update", 1, says("totalChunks")),
    "rows are inserted, others announced": (Step, "_check_lease", 9, lambda *_: True),
    "some rows are written": (Intents, "record", 4, lambda *_: True),
    "updates are written, inserts are not": (Intents, "record", 6, lambda *_: True),
    "rows are loaded and not recorded": (Step, "end_chunk", 1, lambda *_: True),
    "the chunk is recorded and nothing finishes": (Step, "queue_finish", 1, lambda *_: True),
    "the finish job is not named": (_Own, "update", 1, says("finishJobId")),
    "only the job is not settled": (Step, "settle", 2, lambda *_: True),
    "the import is not ended": (Step, "end_import", 1, lambda *_: True),
    "the import has ended": (Step, "settle", 3, lambda *_: True),
}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "WRITE_ROWS", BATCH_ROWS)


async def half_there(office: Office, alone: StandaloneRig) -> None:
    """30 rows as in the file, 30 that differ from it."""
    declared = office.app.importers["customers"]
    async with office.app.store.import_step(ImportStep(uuid7(), -1, "", "", None)) as step:
        await step.create_table("customers", declared.columns, declared.key)
    alone.database["customers"].insert_many(
        {"email": email, "name": name if n < 30 else "Old", "credit": Decimal128(f"{credit}.00"), "active": True}
        for n, (email, name, credit) in enumerate(PEOPLE[:60])
    )


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("place", PLACES)
async def test_what_an_attempt_that_died_has_done_is_counted_once_and_right(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    office = await make_office()
    await half_there(office, alone)
    calls = die(monkeypatch, *PLACES[place])
    record = await office.run(FILE)

    assert len(calls) >= PLACES[place][2], "it did not die"
    assert (record.status, told(record)) == (ImportStatus.SUCCEEDED, (ROWS, 40, 30, 30, 0, 0))
    assert people(alone) == EXPECTED
    assert list(alone.database[INTENTS].find()) == []


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("place", ["some rows are written", "rows are loaded and not recorded"])
@pytest.mark.parametrize("key", [["email"], []], ids=["by key", "without a key"])
async def test_rows_that_an_attempt_that_died_has_added_are_not_added_again(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch, key: list[str], place: str
) -> None:
    office = await make_office(mode="insert", key=key)
    die(monkeypatch, *PLACES[place])
    record = await office.run(FILE)

    assert told(record) == (ROWS, ROWS, 0, 0, 0, 0)
    assert people(alone) == EXPECTED


@pytest.mark.usefixtures("small_batches")
async def test_the_count_notices_that_intents_are_not_read(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the counts, taken out: what the first attempt has written counts as unchanged."""
    office = await make_office()
    await half_there(office, alone)
    die(monkeypatch, Intents, "record", 6)

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(Intents, "read", nothing)
    record = await office.run(FILE)

    assert told(record) != (ROWS, 40, 30, 30, 0, 0)


@pytest.mark.usefixtures("small_batches")
async def test_rows_are_doubled_if_their_ids_are_left_to_chance(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of rows without a key, taken out."""
    office = await make_office(mode="insert", key=[])
    die(monkeypatch, Intents, "record", 6)
    monkeypatch.setattr(RowIds, "id_of", lambda *_: ObjectId())
    await office.run(FILE)

    assert len(people(alone)) > ROWS


async def test_an_import_whose_last_chunk_job_dies_is_failed_and_can_go_on(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office()

    with monkeypatch.context() as patch:
        for attempt in range(1, office.app.settings.max_attempts + 1):
            die(patch, Step, "queue_finish", attempt)
        failed = await office.run(FILE)
    assert failed.status is ImportStatus.FAILED
    await office.app.imports.resume(failed.id)
    await office.work()
    record = await office.app.imports.get(failed.id)

    assert (record.status, told(record)) == (ImportStatus.SUCCEEDED, (ROWS, ROWS, 0, 0, 0, 0))
    assert people(alone) == EXPECTED


async def test_an_attempt_that_lost_its_lease_writes_nothing_more(
    make_office: MakeOffice, alone: StandaloneRig
) -> None:
    office = await make_office()
    record = await office.run(customers_csv([("a@x.org", "New", "1")]))
    import polars as pl

    rows = pl.DataFrame({"row": [2], "email": ["a@x.org"], "name": ["Old"]})
    how = Load("customers", [Column("email", Kind.TEXT), Column("name", Kind.TEXT)], ["email"], Mode.UPSERT)
    lost = ImportStep(record.id, 0, record.id, "gone", 7)
    with pytest.raises(LeaseLost):
        async with office.app.store.import_step(lost) as step:
            await step.load(how, rows)

    assert people(alone) == [("a@x.org", "New", "1.00")]


@pytest.mark.usefixtures("small_batches")
async def test_a_cancelled_import_stops_between_two_writes_and_can_go_on(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office()
    import_id = await office.add(FILE)
    record, calls = Intents.record, list[int]()

    async def cancelling(self: Intents, *given: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            await office.app.store.cancel_import(import_id)  # without its jobs, which are told at the next heartbeat
        await record(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Intents, "record", cancelling)
        await office.work()
    assert len(people(alone)) == 3 * BATCH_ROWS
    assert told(await office.app.imports.get(import_id)) == (0, 0, 0, 0, 0, 0)
    await office.app.imports.resume(import_id)
    await office.work()

    assert told(await office.app.imports.get(import_id)) == (ROWS, ROWS, 0, 0, 0, 0)
    assert people(alone) == EXPECTED


async def test_a_replace_that_was_cancelled_removes_nothing_that_it_has_not_replaced(
    make_office: MakeOffice, alone: StandaloneRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(mode="replace")
    await office.run(customers_csv([("old@x.org", "Old", "1")]))
    remove = Step.remove_replaced

    async def cancelling(self: Step, *given: Any) -> int:
        await office.app.store.cancel_import(import_id)
        return await remove(self, *given)

    monkeypatch.setattr(Step, "remove_replaced", cancelling)
    import_id = await office.add(FILE)
    await office.work()

    assert (await office.app.imports.get(import_id)).status is ImportStatus.CANCELLED
    assert {email for email, *_ in people(alone)} == {"old@x.org", *(email for email, *_ in PEOPLE)}


async def test_an_import_that_is_cleaned_while_it_is_resumed_stays_over(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office()
    store = office.app.store
    import_id = await office.add(FILE)
    await store.cancel_import(import_id)
    resumed = import_steps._resumed

    async def cleaning(*given: Any) -> Any:
        change = await resumed(*given)
        assert await store.clean_import(import_id)
        return change

    monkeypatch.setattr(import_steps, "_resumed", cleaning)
    with pytest.raises(ImportNotResumable):
        await office.app.imports.resume(import_id)
    record = await office.app.imports.get(import_id)

    assert record.status is ImportStatus.CANCELLED
    assert record.cleaned_at is not None


async def test_two_imports_into_one_collection_at_once_write_every_row(
    make_office: MakeOffice, alone: StandaloneRig
) -> None:
    office = await make_office()
    first = await office.add(customers_csv([(f"a{n}@x.org", "First", "1") for n in range(80)]), force=True)
    second = await office.add(customers_csv([(f"a{n}@x.org", "Second", "1") for n in range(80)]), force=True)
    await office.work()
    one, two = [await office.app.imports.get(each) for each in (first, second)]

    assert [one.status, two.status] == [ImportStatus.SUCCEEDED] * 2
    assert one.counts.inserted + two.counts.inserted == 80 == len(people(alone))


# -- what does not -----------------------------------------------------------------------------------


async def test_all_or_nothing_is_refused_before_a_byte_is_taken(make_office: MakeOffice, tmp_path: Path) -> None:
    office = await make_office(policy="all_or_nothing")
    taken = []

    async def body() -> AsyncIterator[bytes]:
        taken.append(1)
        yield FILE.encode()

    with pytest.raises(FileRefused, match=r"'customers' loads all rows or none.*replica set") as refused:
        await Intake(office.app).receive(body(), "customers.csv", About(type="customers"))

    assert refused.value.code == "needs_transactions"
    assert "127.0.0.1" not in str(refused.value)
    assert problem_of(refused.value).code == "needs_transactions"
    assert (taken, stored_files(tmp_path / "store")) == ([], [])


async def test_an_importer_that_became_all_or_nothing_fails_at_its_first_attempt(make_office: MakeOffice) -> None:
    import_id = await (await make_office()).add(FILE)
    office = await make_office(policy="all_or_nothing")
    await office.work()
    record = await office.app.imports.get(import_id)

    assert record.status is ImportStatus.FAILED
    assert error_of(record)["code"] == "needs_transactions"


class Writing(Importer):
    async def prepare(self, run: Run) -> None:
        await run.execute({"insert": "log", "documents": [{"import": run.id}]})


async def test_a_dry_run_whose_prepare_writes_is_refused(make_office: MakeOffice, alone: StandaloneRig) -> None:
    office = await make_office(Writing)
    dry = await office.run(FILE, dry_run=True)
    assert error_of(dry)["code"] == "needs_transactions"
    assert alone.database["log"].count_documents({}) == 0
    record = await office.run(FILE)

    assert record.status is ImportStatus.SUCCEEDED
    assert alone.database["log"].count_documents({"import": record.id}) == 1
    alone.database.drop_collection("log")


async def test_a_handler_with_a_transaction_fails_at_its_first_attempt(make_office: MakeOffice) -> None:
    office = await make_office()

    @office.app.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction():
            raise AssertionError("it began")

    receipt = await office.app.enqueue("pay")
    await office.work()
    job = await office.app.get(receipt.job_id)

    assert (job.status, job.attempts) == ("failed", 1)
    assert "job.transaction() in job type 'pay'" in (job.error or "")
    assert "--replSet" in (job.error or "")


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_enqueue_in_a_transaction_of_the_callers_is_refused(
    make_office: MakeOffice, alone: StandaloneRig, in_transaction: bool
) -> None:
    office = await make_office()
    office.app.job("a")(lambda job: None)
    client = office.app.store._link.new_client()
    async with client, client.start_session() as session:
        if in_transaction:
            await session.start_transaction()
        with pytest.raises(NoTransactions, match="enqueue without connection="):
            await office.app.enqueue("a", connection=session)
    with pytest.raises(NoTransactions), alone.resource_given.client.start_session() as blocking:
        await asyncio.to_thread(office.app.store.enqueue_blocking, [office.app.engine.builder.new("a", {})], blocking)

    assert alone.database["jobs"].count_documents({}) == 0


async def test_the_doctor_names_the_importers_that_are_refused(make_office: MakeOffice) -> None:
    from rowlock.cli.doctor import _without_transactions

    (finding,) = await _without_transactions((await make_office(policy="all_or_nothing")).app)
    assert "'customers'" in finding.message
    assert await _without_transactions((await make_office()).app) == []

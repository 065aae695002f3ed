"""An import job that becomes a dead letter: what people see, and how the import is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from imports.conftest import Customer, MakeOffice, Office, customers_csv
from rowlock import Importer, JobNotRetryable, Permanent, Rowlock, Run, StoreUnavailable
from rowlock.dashboard.import_view import steps
from rowlock.management import ManagementService
from rowlock.storage.imports import ImportRecord, ImportStatus

pytestmark = pytest.mark.every_store


class Broken:
    """Declares an importer whose hook fails until it is put right."""

    def __init__(self) -> None:
        self.right = False

    def declare(self, app: Rowlock) -> None:
        broken = self

        @app.importer("customers", row=Customer, key=["email"], into="customers")
        class Customers(Importer):
            async def enrich(self, frame: Any, run: Run) -> Any:
                if not broken.right:
                    raise Permanent("the price list is missing")
                return frame


async def failed(make_office: MakeOffice) -> tuple[Office, Broken, ImportRecord]:
    broken = Broken()
    office = await make_office(broken.declare)
    record = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "2")]))
    assert record.status is ImportStatus.FAILED
    return office, broken, record


@pytest.mark.parametrize("by", ["id", "group", "failure"])
async def test_retrying_a_dead_chunk_lets_its_import_go_on(make_office: MakeOffice, by: str) -> None:
    office, broken, record = await failed(make_office)
    management = ManagementService(office.app)
    (chunk,) = [each for each in (await management.import_job(record.id)).chunks if each.index >= 0]
    broken.right = True
    if by == "id":
        await management.retry(chunk.job_id)
    elif by == "group":
        assert (await management.retry_dead(type="rowlock.import")).retried == 1
    else:
        await management.retry_failure((await management.failures()).failures[0].id)
    await office.work()

    after = await office.app.imports.get(record.id)
    assert after.status is ImportStatus.SUCCEEDED, after.error
    assert [name for _, name in await office.table("email", "name")] == ["Ann", "Bob"]
    assert (await management.jobs(status="failed")).jobs == []


@pytest.mark.parametrize(("by", "failing"), [("id", "resume_import"), ("group", "resume_import"), ("id", "retry")])
async def test_a_retry_that_the_store_cuts_short_can_be_done_again(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch, failing: str, by: str
) -> None:
    office, broken, record = await failed(make_office)
    management = ManagementService(office.app)
    (chunk,) = [each for each in (await management.import_job(record.id)).chunks if each.index >= 0]
    broken.right = True

    async def retry() -> None:
        await (management.retry(chunk.job_id) if by == "id" else management.retry_dead(type="rowlock.import"))

    async def unavailable(*given: Any, **named: Any) -> Any:
        raise StoreUnavailable("the network is away")

    with monkeypatch.context() as patch:
        patch.setattr(office.app.store, failing, unavailable)
        with pytest.raises(StoreUnavailable):
            await retry()
    await office.work()
    await retry()
    await office.work()
    assert (await office.app.imports.get(record.id)).status is ImportStatus.SUCCEEDED
    assert (await management.jobs(status="failed")).jobs == []


async def test_retrying_a_job_that_did_not_fail_resumes_nothing(make_office: MakeOffice) -> None:
    office, _, record = await failed(make_office)
    (parent,) = (await ManagementService(office.app).jobs(status="succeeded", type="rowlock.import")).jobs
    with pytest.raises(JobNotRetryable):
        await office.app.retry(parent.id)
    assert (await office.app.imports.get(record.id)).status is ImportStatus.FAILED


async def test_a_dead_chunk_is_shown_as_failed_and_its_guidance_helps(make_office: MakeOffice) -> None:
    office, _, record = await failed(make_office)
    management = ManagementService(office.app)
    (chunk,) = [each for each in (await management.import_job(record.id)).chunks if each.index >= 0]
    assert chunk.status == "failed"
    told = " ".join((await management.job(chunk.job_id)).guidance)
    assert f"rowlock imports resume {record.id}" in told
    assert "dead retry" not in told


async def test_a_scoped_retry_does_not_resume_what_would_change_rows_of_others(make_office: MakeOffice) -> None:
    broken = Broken()
    office = await make_office(broken.declare)
    record = await office.run(customers_csv([("a@x.org", "Ann", "1")]), company_id="acme")
    broken.right = True
    assert (await ManagementService(office.app, "acme").retry_dead(type="rowlock.import")).retried == 1
    await office.work()
    assert (await office.app.imports.get(record.id)).status is ImportStatus.FAILED
    assert await office.table() == []


async def test_the_error_of_an_attempt_is_shown_while_the_next_one_waits(make_office: MakeOffice) -> None:
    def declare(app: Rowlock) -> None:
        @app.importer("customers", row=Customer, key=["email"], into="customers")
        class Customers(Importer):
            async def enrich(self, frame: Any, run: Run) -> Any:
                raise RuntimeError("the price list is locked")

    office = await make_office(declare)
    import_id = await office.add(customers_csv([("a@x.org", "Ann", "1")]))
    await office.work()
    told = await ManagementService(office.app).import_job(import_id)
    assert told.status == "RUNNING"
    assert "an attempt failed and is retried: RuntimeError: the price list is locked" in told.message
    assert "the price list is locked" in steps(told)[2].text

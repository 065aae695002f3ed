"""What the documents expect of the application: identical jobs are refused, their tables are there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from office_rig import Office

import backoffice
from conformance.stores import Rig
from rowlock import DuplicateJob, FakeClock, Rowlock
from rowlock.management import ManagementService
from web.site import Site

ENQUEUE = "/api/v1/queue/enqueue"
MESSAGE = {"type": "sendNotifications", "payload": {"companyId": "acme", "message": "hi"}}


@pytest.fixture
async def site(office: Office) -> AsyncIterator[Site]:
    made = Site(office.app)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.every_store
async def test_the_same_job_over_http_is_accepted_once_in_24_hours(site: Site, clock: FakeClock) -> None:
    first = await site.post(ENQUEUE, MESSAGE)
    assert first.status_code == 201
    turned = {"type": MESSAGE["type"], "payload": {"message": "hi", "companyId": "acme"}}
    second = await site.post(ENQUEUE, turned)
    assert second.status_code == 409
    told = second.json()
    assert (told["existingJobId"], told["existing"]["id"]) == (first.json()["id"], first.json()["id"])
    assert (await site.post(ENQUEUE, MESSAGE | {"unique": {"policy": "none"}})).status_code == 201
    clock.advance(hours=24, seconds=1)
    assert (await site.post(ENQUEUE, MESSAGE)).status_code == 201


async def test_the_command_line_goes_the_same_way_and_code_does_not(office: Office) -> None:
    desk = ManagementService(office.app)  # what a command asks
    await desk.enqueue("sendNotifications", {"companyId": "acme", "message": "hi"})
    with pytest.raises(DuplicateJob):
        await desk.enqueue("sendNotifications", {"companyId": "acme", "message": "hi"})
    for _ in range(2):
        assert (await office.app.enqueue("sendNotifications", {"companyId": "acme", "message": "hi"})).created


@pytest.mark.every_store
async def test_the_smoke_check_of_the_document_finds_its_tables(rig: Rig, clock: FakeClock) -> None:
    await rig.make_bare(clock)
    chosen = backoffice.app.settings.model_copy(update={"database_url": rig.url, "connections": 2})
    async with Rowlock(settings=chosen, clock=clock) as app:
        await app.migrate()
        for name in ("job_failures", "job_idempotency_locks"):
            async with app.store.transaction() as transaction:
                assert list(await transaction.fetch(*rig.read_all(name))) == []


async def test_pings_are_never_duplicates(site: Site) -> None:
    assert [(await site.post(ENQUEUE, {"type": "healthPing"})).status_code for _ in range(3)] == [201] * 3


async def test_an_equal_write_to_a_service_may_be_sent_again(office: Office) -> None:
    for name in office.app.integrations["hubspot"].operations:
        unique = office.app.registry.require(f"hubspot.{name}").unique
        assert unique is not None
        assert unique.policy in ("none", "while_active")

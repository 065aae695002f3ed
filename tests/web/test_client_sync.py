"""The client and the commands, reading integrations from a server: the same results, and nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from rowlock.client import Client
from rowlock.client import wire as wiring
from rowlock.errors import (
    BadPayload,
    CompanyMismatch,
    IntegrationDisabled,
    IntegrationNotFound,
    OperationNotFound,
    RowlockError,
    SettingsError,
)
from rowlock.management import ManagementService
from sync.service import Service, serving
from web.conftest import MakeSite
from web.relay import Relay
from web.site import Site
from web.syncing import SCOPES_URL, agrees, declare_crm, refuses
from web.test_cli_server import Run, run
from web.test_client import as_json

__all__ = ["run"]

ADA = {"email": "ada@example.org"}


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as made:
        made.answer = agrees
        yield made


@pytest.fixture
async def site(make_site: MakeSite, service: Service) -> Site:
    site = await make_site(partial(declare_crm, base_url=service.url))
    site.app.integration("books", base_url="http://127.0.0.1:9", disabled="set BOOKS_TOKEN").operation("ensure")(ensure)
    return site


async def ensure(call: object) -> None: ...


@pytest.fixture
async def client(site: Site) -> AsyncIterator[Client]:
    async with Client(site.url, site.tokens["operator"]) as client:
        yield client


@pytest.mark.every_store
async def test_a_client_answers_what_the_management_answers(site: Site, client: Client, service: Service) -> None:
    service.answer = refuses
    job = await client.sync_send("crm", "create_contact", ADA, priority=2, company_id="acme")
    assert (job.created, job.priority, job.company_id) == (True, 2, "acme")
    again = await client.sync_send("crm", "create_contact", ADA, company_id="acme", delay_seconds=5)
    assert (again.created, again.id) == (False, job.id)
    await site.app.work(drain=True)
    management = ManagementService(site.app)
    for ask in (
        lambda one: one.integrations(),
        lambda one: one.sync_stats("crm"),
        lambda one: one.sync_monitor("crm"),
        lambda one: one.jobs(status="failed", type="crm.*"),
    ):
        assert as_json(await ask(client)) == as_json(await ask(management))
    assert (await client.sync_monitor("crm")).failures[0].job_id == job.id
    assert (await client.retry_dead(type="crm.*")).retried == 1


async def test_errors_are_those_of_local_calls(site: Site, client: Client) -> None:
    for one in (client, ManagementService(site.app)):
        for wrong, ask in (
            (IntegrationNotFound, one.sync_stats("crn")),
            (IntegrationNotFound, one.sync_monitor("../queue")),
            (IntegrationNotFound, one.sync_send("crn", "create_contact")),
            (OperationNotFound, one.sync_send("crm", "create_contct", ADA)),
            (IntegrationDisabled, one.sync_send("books", "ensure")),
            (BadPayload, one.sync_send("crm", "create_contact")),
            (BadPayload, one.sync_send("crm", "create_contact", {"email": "x", "amount": float("nan")})),
        ):
            with pytest.raises(wrong):
                await ask
        with pytest.raises(RowlockError, match="priority"):
            await one.sync_send("crm", "create_contact", ADA, priority=11)
    with pytest.raises(SettingsError):
        await client.sync_stats("")
    with pytest.raises(CompanyMismatch):
        await ManagementService(site.app, "acme").sync_send("crm", "create_contact", ADA, company_id="globex")
    assert (await client.sync_stats("crm")).pending == 0


async def test_an_operation_whose_answer_was_lost_is_sent_once(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "_AGAIN_SECONDS", 0.001)
    given = ADA | {"properties": {"tier": "gold"}}  # of an operation without a key
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["operator"]) as lossy:
        relay.answers_to_lose = 1
        job = await lossy.sync_send("crm", "update_contact", given)
    assert [each.id for each in (await client.jobs(type="crm.*")).jobs] == [job.id]


async def test_the_commands_ask_a_server(run: Run, site: Site, service: Service) -> None:
    service.answer = refuses
    sent = await run("sync", "send", "crm", "create_contact", "--payload", '{"email": "ada@example.org"}', "--json")
    assert (sent.code, sent.json["created"]) == (0, True)
    await site.app.work(drain=True)
    listed = await run("sync", "list", token="viewer")
    assert listed.err == "note: books is disabled: set BOOKS_TOKEN\n"
    assert (await run("sync", "stats", "crm", "--json", token="viewer")).json["dead"] == 1
    shown = await run("sync", "monitor", "crm", token="viewer")
    assert sent.json["id"] in shown.out
    assert (await run("sync", "stats")).code == 2
    dead = await run("dead", "list", "--type=crm.*")
    assert sent.json["id"] in dead.out
    assert SCOPES_URL in dead.err
    assert "rowlock dead retry --type 'crm.*'" in dead.err
    denied = await run("sync", "send", "crm", "create_contact", "--json", token="viewer")
    assert (denied.code, denied.json["code"]) == (1, "forbidden")
    off = await run("sync", "send", "books", "ensure", "--json")
    assert (off.code, off.json["code"], off.json["message"]) == (
        *(1, "integration_disabled", "books is disabled: set BOOKS_TOKEN"),
    )
    service.answer = agrees
    assert (await run("dead", "retry", "--type=crm.*")).out == "1 jobs are queued again\n"
    await site.app.work(drain=True)
    assert (await run("sync", "stats", "crm", "--json")).json["completed24h"] == 1

"""The pages of sync: integrations, their state, and where to correct credentials."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rowlock import RateLimit, Rowlock
from rowlock.clock import StoreClock
from rowlock.storage.access import Role
from sync.service import serving
from web.conftest import MakeSite
from web.paper import paper
from web.site import Site
from web.syncing import SCOPES_URL, SECRET, agrees, declare_crm, refuses, sent


async def synced(make_site: MakeSite, **options: Any) -> Site:
    """A site with an integration."""
    return await make_site(lambda app: declare_crm(app, **options), clock=StoreClock())


async def test_without_integrations_the_page_says_how_to_declare_one(site: Site) -> None:
    page = await paper(site, "/sync")
    assert "No integration is declared" in page.text
    assert "app.integration(" in page.text


async def test_every_integration_is_listed_with_why_it_is_disabled(make_site: MakeSite) -> None:
    def declare(app: Rowlock) -> None:
        declare_crm(app)
        declare_crm(app, "mailer", disabled="set MAILER_TOKEN")

    site = await make_site(declare, clock=StoreClock())
    page = await paper(site, "/sync")
    assert page.links["crm"] == "/sync/crm"
    assert "crm enabled" in page.text
    assert "mailer disabled It is disabled: set MAILER_TOKEN." in page.text
    alone = await paper(site, "/sync/mailer")
    assert "mailer disabled" in alone.text
    assert "It is disabled: " in alone.text


async def test_what_is_sent_is_counted_and_leads_to_the_jobs(make_site: MakeSite) -> None:
    async with serving() as service:
        service.answer = agrees
        site = await synced(make_site, base_url=service.url)
        await sent(site, payload={"email": "a@b.c"})
        await site.app.work(drain=True)
        await sent(site, payload={"email": "d@e.f"})
        page = await paper(site, "/sync/crm")
    figures = page.part("figures")
    assert (
        "Pending 1 Processing 0 Failed, will retry 0 Dead letters 0 Completed in 24 h 1 Mean duration of a job"
        in figures
    )
    assert "Lag" in figures
    assert page.links["1"] == "/jobs?status=queued&type=crm.%2A"
    assert "No failures" in page.part("failures")
    assert page.links["create_contact"] == "/jobs?type=crm.create_contact"
    assert "create_deal off: its jobs are skipped" in page.part("operations")


async def test_what_is_left_of_the_limits_is_told(make_site: MakeSite) -> None:
    limits = [
        RateLimit(190, per_seconds=10),
        RateLimit(9_000, per_seconds=86_400),
        RateLimit(5, per_seconds=1, group="search"),
    ]
    page = await paper(await synced(make_site, limits=limits), "/sync/crm")
    assert "190 of 190 calls left in any 10 s" in page.part("limits")
    assert "9,000 of 9,000 calls left in any 24 h" in page.part("limits")
    assert "5 of 5 calls left in any 1 s, for search" in page.part("limits")


async def test_what_was_refused_leads_to_the_scopes_and_the_dead_letters(make_site: MakeSite) -> None:
    async with serving() as service:
        service.answer = refuses
        site = await synced(make_site, base_url=service.url)
        job = await sent(site, payload={"email": "a@b.c"})
        await site.app.work(drain=True)
        page = await paper(site, "/sync/crm")
    failures = page.part("failures")
    assert "create_contact" in failures
    assert "failed" in failures
    assert "MISSING_SCOPES" in failures
    assert "not automatic" in failures
    assert page.links["create_contact"] == f"/jobs/{job['id']}"
    assert page.links["See the permissions of the credentials"] == SCOPES_URL
    assert page.links["See why jobs failed, and retry them"] == "/dead?type=crm.%2A"
    dead = await paper(site, page.links["See why jobs failed, and retry them"])
    assert "crm.create_contact 1 job" in dead.text
    assert SCOPES_URL in dead.text
    alone = await paper(site, f"/jobs/{job['id']}")
    assert alone.links["Permissions of the credentials for crm"] == SCOPES_URL
    assert "/sync/crm" in alone.hrefs
    assert SECRET not in page.text + dead.text + alone.text


async def test_what_is_tried_again_says_when(make_site: MakeSite) -> None:
    site = await synced(make_site)
    await sent(site, payload={"email": "a@b.c"})
    await site.app.work(drain=True)
    failures = (await paper(site, "/sync/crm")).part("failures")
    assert "queued" in failures
    assert "CallFailed" in failures
    assert "in " in failures.partition("CallFailed")[2]


async def test_one_company_sees_its_own_and_no_limits(make_site: MakeSite) -> None:
    site = await synced(make_site)
    await site.add_token("acme", Role.VIEWER, "acme")
    await sent(site, payload={"email": "a@b.c"}, companyId="acme")
    await sent(site, payload={"email": "d@e.f"}, companyId="globex")
    page = await paper(site, "/sync/crm", "acme")
    assert "Pending 1 " in page.part("figures")
    assert "All companies share the limits" in page.part("limits")
    assert "Pending 2 " in (await paper(site, "/sync/crm")).part("figures")


@pytest.mark.parametrize("name", ["nobody", "%3Cscript%3E", "a/b", "x" * 201])
async def test_an_integration_that_is_none_is_told(make_site: MakeSite, name: str) -> None:
    site = await synced(make_site)
    page = await paper(site, f"/sync/{name}", status=422 if len(name) > 200 else 404)
    assert page.links["To the overview"] == "/"


async def test_the_page_listens_to_its_integration(make_site: MakeSite) -> None:
    site = await synced(make_site)
    assert 'data-live="/api/v1/events?type=crm.*"' in (await site.get("/sync/crm")).text


async def test_a_name_of_any_characters_is_quoted_where_the_page_listens(make_site: MakeSite) -> None:
    name = "c&m #1+ü"
    site = await make_site(lambda app: declare_crm(app, name), clock=StoreClock())
    page = await paper(site, "/sync")
    answer = await site.get(page.links[name])
    live = re.search(r'data-live="([^"]*)"', answer.text)
    assert live
    address = urlsplit(html.unescape(live[1]))
    assert (parse_qs(address.query), address.fragment) == ({"type": [f"{name}.*"]}, "")

"""Changes of an import are sent to event streams that may see it."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.storage.access import Role
from web.importing import declare_importers, half_done, imported
from web.site import Site
from web.test_events import Stream, listening


@pytest.fixture
async def shop(site: Site) -> Site:
    declare_importers(site.app)
    await site.add_token("acme", Role.VIEWER, "acme")
    return site


async def told(stream: Stream, import_id: str) -> dict[str, Any]:
    """The next news of an import, with nothing of another before it."""
    while True:
        kind, data = await stream.event()
        if kind == "import":
            assert data["id"] == import_id
            return data


@pytest.mark.every_store
async def test_how_far_an_import_is_is_told(shop: Site) -> None:
    async with listening(shop) as stream:
        import_id = await imported(shop)
        assert (await told(stream, import_id))["status"] == "QUEUED"
        await half_done(shop, import_id)
        while (news := await told(stream, import_id))["completedChunks"] == 0:
            pass
        assert (news["status"], news["progress"], news["totalChunks"]) == ("RUNNING", 54, 2)
        assert news["message"] == "loading: 1 of 2 chunks are done"
        assert news["summary"] == {
            "totalRows": 3,
            "inserted": 1,
            "updated": 0,
            "unchanged": 0,
            "duplicates": 0,
            "failed": 2,
            "errorCount": 3,
        }


async def test_of_one_import_only_its_own_news_are_told(shop: Site) -> None:
    await imported(shop)
    import_id = await imported(shop)
    async with listening(shop, f"?import={import_id.upper()}") as stream:
        assert (await stream.event())[0] == "ready"
        await imported(shop)
        await shop.post(f"/api/v1/import-jobs/{import_id}/cancel")
        kind, data = await stream.event()
        assert (kind, data["id"], data["status"]) == ("import", import_id, "CANCELLED")


async def test_streams_of_jobs_or_of_another_company_get_no_import_events(shop: Site) -> None:
    async with listening(shop, "?type=rowlock.import") as jobs, listening(shop, token="acme") as acme:
        for stream in (jobs, acme):
            assert (await stream.event())[0] == "ready"
        await imported(shop, companyId="globex")
        mine = await imported(shop, companyId="acme")
        assert (await told(acme, mine))["companyId"] == "acme"
        assert {(await jobs.event())[0] for _ in range(2)} == {"job"}


@pytest.mark.every_store
async def test_a_client_that_comes_back_hears_what_became_of_imports(shop: Site) -> None:
    async with listening(shop) as stream:
        await stream.marked()
        left_at = stream.last_id
    import_id = await imported(shop)
    async with listening(shop, last_event_id=left_at) as stream:
        assert (await told(stream, import_id))["status"] == "QUEUED"

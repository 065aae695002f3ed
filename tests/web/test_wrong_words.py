"""Error messages that were misleading before."""

from __future__ import annotations

import pytest

from rowlock.storage.access import Role
from web.importing import declare_owned, form, raw
from web.site import Site, problem


@pytest.fixture
async def shop(site: Site) -> Site:
    declare_owned(site.app)
    await site.add_token("acme", Role.ADMIN, "acme")
    return site


@pytest.mark.parametrize("way", ["raw", "form", "page"])
async def test_an_upload_belongs_to_the_company_of_its_token(shop: Site, way: str) -> None:
    if way == "raw":
        answer = await raw(shop, token="acme", type="owned")
    elif way == "form":
        answer = await form(shop, token="acme", type="owned")
    else:
        answer = await form(shop, token="acme", path="/imports", type="owned", companyId="")
    assert answer.status_code in (202, 303), answer.text
    (found,) = (await shop.get("/api/v1/import-jobs", "acme")).json()["imports"]
    assert found["companyId"] == "acme"


async def test_without_a_company_it_is_asked_for(shop: Site) -> None:
    problem(await raw(shop, token="admin", type="owned"), 422, "company_required")


@pytest.mark.every_store
async def test_odd_characters_in_an_address_are_no_fault_of_the_store(shop: Site) -> None:
    fields = (
        "type",
        "status",
        "cursor",
        "as",
        "file",
        "queue",
        "companyId",
        "reason",
        "since",
        "id",
        "next",
        "minutes",
    )
    for path in ("/imports", "/jobs", "/dead", "/sync", "/", "/sign-in", "/dead/retry"):
        for field in fields:
            for text in ("%00", "a%00b", "%ed%a0%80"):
                answer = await shop.get(f"{path}?{field}={text}")
                assert answer.status_code < 500, (path, field, text, answer.status_code)

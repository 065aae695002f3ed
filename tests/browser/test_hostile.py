"""Hostile strings from any source are shown as text and do nothing."""

from __future__ import annotations

from urllib.parse import quote

from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.house import House
from browser.scene import upload

EVIL = "\"'></pre></title><script>window.evil=1</script><img src=x onerror=window.evil=1>{{7*7}}${7*7}"
LONG = "W" * 3_000


async def harmless(page: Page) -> None:
    assert await page.evaluate("window.evil") is None
    assert await page.locator("img[src=x], script:not([src])").count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_what_a_job_carries_and_says(house: House, visit: Visit) -> None:
    company = "<b>evil&amp;</b>"
    job_id = await house.enqueue("note", {"message": EVIL, EVIL: LONG, "bidi": "\u202egnp"}, companyId=company)
    (dead,) = await house.dead(reason=EVIL, company=company)
    await house.dead(reason=LONG)
    token = await house.token("admin", name=EVIL)
    visitor = await visit(house, token, f"/jobs/{job_id}")
    page = visitor.page
    await expect(page.locator("#now")).to_contain_text(EVIL)
    await expect(page.locator("#payload")).to_contain_text("<script>window.evil=1</script>")
    await expect(page.get_by_text(company, exact=True).first).to_be_visible()
    await expect(page.get_by_role("banner")).to_contain_text(EVIL)
    await harmless(page)
    for path in (f"/jobs/{dead}", "/dead", f"/dead?type=invoice.send&reason={quote(EVIL)}", "/jobs?status=failed"):
        await visitor.go(path)
        await expect(page.get_by_text(EVIL).first).to_be_visible()
        await harmless(page)
    await house.ask("POST", f"/api/v1/queue/{job_id}/cancel")


async def test_what_a_file_carries(house: House, visit: Visit) -> None:
    cell = EVIL.replace('"', "")
    import_id = await upload(
        house, [("x", cell, "US", "1"), (cell, "Eve", cell, cell)], name="customers-<img src=x onerror=alert(1)>.csv"
    )
    visitor = await visit(house, "operator", f"/imports/{import_id}")
    page = visitor.page
    await expect(page.locator("#errors .cell-bad").filter(has_text=cell).first).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
    await harmless(page)
    await visitor.go("/imports")
    await expect(page.locator("#list").get_by_text("<img src=x").first).to_be_visible()
    await harmless(page)


async def test_what_an_address_carries(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator")
    visitor.expects(r"status of 4\d\d")
    for path in (
        f"/jobs?type={quote(EVIL)}&queue={quote(EVIL)}&companyId={quote(EVIL)}",
        f"/jobs?status={quote(EVIL)}&since={quote(EVIL)}&cursor={quote(EVIL)}&id={quote(EVIL)}",
        f"/dead?type={quote(EVIL)}&reason={quote(EVIL)}",
        f"/imports?type={quote(EVIL)}&status={quote(EVIL)}",
        f"/imports?file={quote(EVIL)}.csv&size=3&as={quote(EVIL)}",
        f"/jobs/{quote(EVIL, safe='')}",
        f"/sync/{quote(EVIL, safe='')}",
        f"/{quote(EVIL)}",
        f"/sign-in?next={quote(EVIL)}&why={quote(EVIL)}",
        "/jobs?type=%00%ff%fe&cursor=%ff",
        f"/jobs?companyId={LONG}",
    ):
        page = await visitor.go(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await harmless(page)

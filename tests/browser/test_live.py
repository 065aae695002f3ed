"""Changes appear on open pages: for everybody, immediately, and after the server was unavailable."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import Locator, Route, expect

from browser.conftest import Visit
from browser.house import House
from rowlock.control import tokens


async def test_two_people_see_the_same_change(any_house: House, visit: Visit) -> None:
    mended = any_house.folder / "two"
    (job_id,) = await any_house.dead(mended=str(mended), reason="two people look at this", company="two-people")
    one = (await visit(any_house, "operator", f"/jobs/{job_id}")).page
    other = (await visit(any_house, "viewer", "/jobs?companyId=two-people")).page
    row = other.locator("#list tbody tr")
    await expect(row.locator(".status")).to_have_text("failed")
    mended.touch()
    await one.get_by_role("button", name="Retry").click()
    await expect(one.locator("#now .status")).to_have_text("succeeded")
    await expect(row.locator(".status")).to_have_text("succeeded")


async def test_a_job_appears_in_a_list_that_is_open(house: House, visit: Visit) -> None:
    page = (await visit(house, "viewer", "/jobs?companyId=appearing")).page
    await expect(page.get_by_text("No job matches")).to_be_visible()
    job_id = await house.enqueue("healthPing", companyId="appearing")
    await expect(page.locator("#list tbody tr")).to_have_count(1)
    await expect(page.locator("#list .status")).to_have_text("succeeded")
    await page.locator("#list").get_by_role("link", name="healthPing").click()
    await expect(page).to_have_url(re.compile(job_id))


async def test_what_changed_before_the_page_listens_is_shown(house: House, visit: Visit) -> None:
    visitor = await visit(house, "viewer", "/sync")
    changed = asyncio.Event()

    async def later(route: Route) -> None:
        await changed.wait()
        await route.continue_()

    await visitor.page.route("**/api/v1/events*", later)
    page = await visitor.go("/jobs?companyId=before-it-listens")
    await house.reaches(await house.enqueue("healthPing", companyId="before-it-listens"), "succeeded")
    changed.set()
    await expect(page.locator("#list .status")).to_have_text("succeeded")


async def test_the_overview_counts_what_happens(house: House, visit: Visit) -> None:
    async def quiet() -> bool:
        """Whether what earlier tests have left in this house stays as it is."""
        jobs = (await house.get("/api/v1/queue?status=processing&limit=100"))["jobs"]
        return all(job["type"] == "demo.sleep" and not job["cancelRequested"] for job in jobs)

    await house.until(quiet, "the jobs of earlier tests end")
    page = (await visit(house, "viewer", "/")).page

    def figure(name: str) -> Locator:
        return page.locator(".figure").filter(has=page.get_by_text(name, exact=True)).locator("dd").first

    before = {name: int(await figure(name).inner_text()) for name in ("Delayed", "Processing")}
    delayed = await house.enqueue("healthPing", delaySeconds=3_600)
    running = await house.enqueue("demo.sleep", {"seconds": 600})
    for name, count in before.items():
        await expect(figure(name)).to_have_text(str(count + 1))
    doing = page.locator(f"main a[href$='/jobs/{running}']")
    await expect(doing).to_have_text("demo.sleep")  # what a worker is doing
    for job_id in (delayed, running):
        await house.ask("POST", f"/api/v1/queue/{job_id}/cancel")
    await expect(figure("Delayed")).to_have_text(str(before["Delayed"]))
    await expect(doing).to_have_count(0)


async def test_live_goes_on_after_the_server_was_started_again(house: House, visit: Visit) -> None:
    visitor = await visit(house, "viewer", "/jobs?companyId=restarted")
    visitor.expects("ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_|ERR_EMPTY_RESPONSE|Failed to load resource")
    page = visitor.page
    rows = page.locator("#list tbody tr")
    await expect(page.locator("#live")).to_have_text("Live")
    await house.enqueue("healthPing", companyId="restarted")
    await expect(rows).to_have_count(1)
    await house.restart_server()
    await house.enqueue("healthPing", companyId="restarted")
    await expect(rows).to_have_count(2)
    await page.reload()
    await expect(rows).to_have_count(2)


async def test_an_open_page_whose_token_is_revoked_asks_to_sign_in(house: House, visit: Visit) -> None:
    visitor = await visit(house, "viewer", "/jobs?companyId=revoked-while-open")
    visitor.expects(r"status of 40[13]", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    await expect(visitor.page.get_by_text("No job matches")).to_be_visible()
    await tokens.revoke(house.store, house.token_id)
    await house.enqueue("healthPing", companyId="revoked-while-open")
    await expect(visitor.page).to_have_url(re.compile("/sign-in"))


async def test_what_somebody_types_or_has_open_is_left_alone(house: House, visit: Visit) -> None:
    """New content must not take away the focus, what is open or half written."""
    await house.dead(reason="left alone")
    page = (await visit(house, "operator", "/dead")).page
    find = page.get_by_label("Type")
    await find.click()
    await find.press_sequentially("invoi")
    summary = page.locator("#groups details summary").first
    await summary.click()
    await expect(page.locator("#groups details").first).to_have_attribute("open", "")
    await summary.focus()
    await house.dead(reason="a new one appears")
    await expect(page.locator(".group").filter(has_text="a new one appears")).to_be_visible()
    await expect(find).to_have_value("invoi")
    await expect(page.locator("#groups details[open]")).to_have_count(1)


async def test_times_are_told_in_words_and_exactly(house: House, visit: Visit) -> None:
    job_id = await house.enqueue("healthPing")
    page = (await visit(house, "viewer", f"/jobs/{job_id}")).page
    time = page.locator("#about time").first
    await expect(time).to_have_text(re.compile(r"^(now|\d+ s ago)$"))
    assert re.match(r"20\d\d-\d\d-\d\d", await time.get_attribute("title") or "")

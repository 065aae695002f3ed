"""By keyboard alone: everything important can be reached, shows its focus, and works."""

from __future__ import annotations

import re

from playwright.async_api import Locator, Page, expect

from browser import sheets
from browser.conftest import Visit
from browser.house import House

TABS_MAX = 80


async def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until the target has the focus; where the focus is, it is seen."""
    for _ in range(TABS_MAX):
        await page.keyboard.press("Tab")
        focus = await page.evaluate(
            """() => {
                const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
                const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
                return {what: each.outerHTML.slice(0, 200), body: each === document.body, shown,
                        empty: box.width < 1 || box.height < 1};
            }"""
        )
        if focus["body"]:
            continue
        assert focus["shown"], f"the focus is not seen: {focus['what']}"
        assert not focus["empty"], f"the focus is on what is not there: {focus['what']}"
        if await target.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"not reached by {TABS_MAX} tabs: {target}")


async def test_sign_in_go_to_a_job_and_retry_it(house: House, visit: Visit) -> None:
    mended = house.folder / "keyboard"
    (job_id,) = await house.dead(mended=str(mended), reason="retried by keyboard")
    page = await (await visit(house)).go(f"/jobs/{job_id}")
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.keyboard.type(await house.token("operator"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#now .status")).to_have_text("failed")
    mended.touch()
    await tab_to(page, page.get_by_role("button", name="Retry"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#now .status")).to_have_text("succeeded")


async def test_the_first_tab_skips_to_the_content(house: House, visit: Visit) -> None:
    page = (await visit(house, "viewer", "/jobs")).page
    skip = page.get_by_role("link", name="Skip to the content")
    await tab_to(page, skip)
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()


async def test_every_section_is_reached(house: House, visit: Visit) -> None:
    page = (await visit(house, "viewer", "/")).page
    sections = page.get_by_role("navigation", name="Sections").get_by_role("link")
    for index in range(1, await sections.count()):
        name = await sections.nth(index).inner_text()
        await tab_to(page, sections.nth(index))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        await expect(sections.nth(index)).to_have_attribute("aria-current", "page")


async def test_a_file_is_checked_and_imported(house: House, visit: Visit) -> None:
    page = (await visit(house, "operator", "/imports")).page
    choose = page.get_by_label(re.compile("^Drag a file here"))
    await tab_to(page, choose)
    await choose.set_input_files(sheets.csv(sheets.good(2, "keyboard.example")))  # the system's own dialog
    await tab_to(page, page.get_by_role("button", name="Check first"))
    await page.keyboard.press("Enter")
    await expect(page.locator(".verdict")).to_contain_text("All 2 rows can be imported.")
    await tab_to(page, page.get_by_role("button", name="Import all rows now"))
    await page.keyboard.press("Space")
    await expect(page.locator(".verdict")).to_contain_text("All 2 rows were imported.")


async def test_a_group_is_discarded(house: House, visit: Visit) -> None:
    reason = "discarded by keyboard"
    (job_id,) = await house.dead(reason=reason)
    page = (await visit(house, "operator", f"/dead?type=invoice.send&reason={reason.replace(' ', '+')}")).page
    await tab_to(page, page.get_by_role("link", name="Discard it…"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Discard")
    await expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Discard it"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="deleted")).to_be_visible()
    assert (await house.ask("GET", f"/api/v1/queue/{job_id}")).status_code == 404

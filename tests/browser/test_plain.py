"""Without JavaScript: everything can be read, and forms work."""

from __future__ import annotations

import re

from playwright.async_api import expect

from browser import sheets
from browser.conftest import Visit
from browser.house import House
from browser.scene import upload


async def test_every_page_can_be_read(house: House, visit: Visit) -> None:
    (dead,) = await house.dead(reason="read without scripts")
    bad = await upload(house, sheets.bad(2, "plain.example"))
    visitor = await visit(house, "operator", java_script_enabled=False)
    for path, words in {
        "/": "ai-cfo-jobs",
        "/jobs": "invoice.send",
        f"/jobs/{dead}": "read without scripts",
        "/dead": "read without scripts",
        "/dead?type=invoice.send&reason=read+without+scripts": "1 job",
        "/imports": "customers.csv",
        f"/imports/{bad}": "2 rows were imported, 3 were not.",
        "/sync": "crm",
        "/sync/crm": "crm",
    }.items():
        page = await visitor.go(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text(words)
        for time in await page.locator("main time:visible").all_inner_texts():
            assert re.fullmatch(r"now|(in )?\d+ (s|min|h|d|y)( ago)?", time), f"{path}: {time}"


async def test_a_file_is_uploaded(any_house: House, visit: Visit) -> None:
    page = (await visit(any_house, "operator", "/imports", java_script_enabled=False)).page
    await page.get_by_label(re.compile("^Drag a file here")).set_input_files(
        sheets.csv(sheets.bad(2, "noscript.example"))
    )
    await page.get_by_role("button", name="Check first").click()
    await expect(page).to_have_url(re.compile("/imports/[0-9a-f-]{36}$"))

    async def over() -> bool:
        await page.reload()
        return "2 of 5 rows can be imported" in await page.locator(".verdict").inner_text()

    await any_house.until(over, "the check is over")
    await expect(page.locator("#errors .cell-bad")).to_have_count(3)
    await page.get_by_role("button", name="Import the 2 valid rows now").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("customers.csv")


async def test_a_wrong_file_is_told(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator", "/imports", java_script_enabled=False)
    visitor.expects(r"status of 4\d\d")
    page = visitor.page
    await page.get_by_label(re.compile("^Drag a file here")).set_input_files(
        {"name": "holiday.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff"}
    )
    await page.get_by_role("button", name="Import now").click()
    await expect(page.locator("#answer")).to_contain_text("csv")


async def test_a_dead_job_is_retried(house: House, visit: Visit) -> None:
    mended = house.folder / "plain"
    (job_id,) = await house.dead(mended=str(mended), reason="retried without scripts")
    page = (await visit(house, "operator", f"/jobs/{job_id}", java_script_enabled=False)).page
    mended.touch()
    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_role("status").filter(has_text="queued again")).to_be_visible()
    await house.reaches(job_id, "succeeded")

    async def over() -> bool:  # what all may see is looked up once for a moment
        await page.reload()
        return await page.locator("#now .status").inner_text() == "succeeded"

    await house.until(over, "the page says so")
    await expect(page.get_by_role("status").filter(has_text="queued again")).to_have_count(0)  # told once

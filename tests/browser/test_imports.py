"""Files in the browser: uploaded, checked, followed until they end, corrected and uploaded again."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import Page, Route, expect

from browser import sheets
from browser.conftest import Visit
from browser.house import House
from browser.scene import upload

PRESS = {"check": "Check first", "import": "Import now"}


async def send(page: Page, file: sheets.File, how: str = "import") -> None:
    """Choose a file and press a button, as a person would."""
    await page.get_by_label(re.compile("^Drag a file here")).set_input_files(file)
    await page.get_by_role("button", name=PRESS[how]).click()


async def ends(page: Page, words: str) -> None:
    """The page of the import comes by itself, and ends so."""
    await expect(page).to_have_url(re.compile("/imports/[0-9a-f-]{36}$"))
    await expect(page.locator(".verdict")).to_contain_text(words)


def posted(page: Page) -> list[str]:
    """The addresses to which the page posts from here on."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if request.method == "POST" else None)
    return found


async def bad_cells(page: Page) -> dict[str, str]:
    """What is said about each cell that is marked, by its place: {'A7': …}."""
    found: dict[str, str] = await page.locator("#errors table.sheet").evaluate(
        """table => {
            const letters = [...table.querySelectorAll(".letters td")].map(cell => cell.innerText.trim());
            return Object.fromEntries([...table.querySelectorAll("tbody .cell-bad")].map(cell => {
                const row = cell.parentElement;
                const place = letters[[...row.children].indexOf(cell)] + row.querySelector("th").innerText.trim();
                return [place, cell.querySelector(".why").innerText];
            }));
        }"""
    )
    return found


async def test_a_good_file_is_uploaded_and_watched_to_its_end(any_house: House, visit: Visit) -> None:
    page = (await visit(any_house, "operator", "/imports")).page
    await send(page, sheets.csv(sheets.good(7, "good.example")))
    await ends(page, "All 7 rows were imported.")
    await expect(page.locator("#errors")).to_be_hidden()
    await page.get_by_role("navigation", name="Sections").get_by_role("link", name="Imports").click()
    first = page.locator("#list tbody tr").first
    await expect(first).to_contain_text("customers.csv")
    await expect(first).to_contain_text("succeeded")


async def test_a_bad_file_is_told_cell_by_cell_mended_and_uploaded_again(any_house: House, visit: Visit) -> None:
    page = (await visit(any_house, "operator", "/imports")).page
    rows = sheets.bad(5, "bad.example")
    await send(page, sheets.csv(rows))
    await ends(page, "5 rows were imported, 3 were not.")
    cells = await bad_cells(page)
    assert list(cells) == ["A7", "C8", "D9"]  # the sheet's own rows and columns
    assert "e-mail address" in cells["A7"]
    assert "two letters" in cells["C8"]
    assert "number" in cells["D9"]
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Download the rows with errors").click()
    text = (await (await downloading.value).path()).read_text(encoding="utf-8-sig")
    assert ("nobody at home" in text, "customer1@" in text) == (True, False)
    await page.get_by_role("link", name="Upload a corrected file").click()
    mended = [("eve@bad.example", *rows[5][1:]), (rows[6][0], rows[6][1], "DE", rows[6][3]), (*rows[7][:3], "3.00")]
    await send(page, sheets.csv([*rows[:5], *mended]))
    await ends(page, "All 8 rows were imported.")
    figures = page.locator(".figures")
    await expect(figures).to_contain_text(re.compile(r"new\s*3"))
    await expect(figures).to_contain_text(re.compile(r"unchanged\s*5"))


async def test_a_check_changes_nothing_and_the_same_rows_are_imported_after_it(any_house: House, visit: Visit) -> None:
    page = (await visit(any_house, "operator", "/imports")).page
    await send(page, sheets.csv(sheets.good(3, "check.example")))
    await ends(page, "All 3 rows were imported.")
    await page.get_by_role("link", name="Upload another file").click()
    changed = [(*sheets.good(1, "check.example")[0][:3], "999.00"), *sheets.bad(4, "check.example")[1:]]
    await send(page, sheets.xlsx(changed), "check")
    await ends(page, "4 of 7 rows can be imported, 3 have errors.")
    await expect(page.locator(".verdict")).to_contain_text("nothing has changed yet")
    await expect(page.locator("#changes")).to_contain_text("customer4@check.example")
    await expect(page.locator("#changes .cell-changed")).to_have_count(1)
    assert set(await bad_cells(page)) == {"A6", "C7", "D8"}
    checked = page.url
    await page.get_by_role("button", name="Import the 4 valid rows now").click()
    await expect(page).not_to_have_url(checked)
    await ends(page, "4 rows were imported, 3 were not.")
    await expect(page.locator(".figures")).to_contain_text(re.compile(r"changed\s*1"))
    await expect(page.locator(".figures")).to_contain_text(re.compile(r"new\s*1"))


async def test_the_same_file_twice_is_told_and_imported_only_on_purpose(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator", "/imports")
    visitor.expects("status of 409")
    page = visitor.page
    file = sheets.csv(sheets.good(2, "twice.example"))
    await send(page, file)
    await ends(page, "All 2 rows were imported.")
    first = page.url
    await visitor.go("/imports")
    await send(page, {**file, "name": "customers-again.csv"})
    await expect(page.locator("#answer")).to_contain_text("customers.csv")
    await expect(page.get_by_role("link", name="see its result")).to_have_attribute(
        "href", re.compile(first.rpartition("/")[2])
    )
    await page.get_by_role("button", name="Import it again").click()
    await ends(page, "All 2 rows were already in the table.")
    assert page.url != first


async def test_enter_in_a_field_checks_and_never_imports_again(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator", "/imports")
    visitor.expects("status of 409")
    page = visitor.page
    file = sheets.csv(sheets.good(2, "enter.example"))
    await send(page, file)
    await ends(page, "All 2 rows were imported.")
    await visitor.go("/imports")
    await send(page, file)
    await expect(page.get_by_role("button", name="Import it again")).to_be_visible()
    await page.get_by_text("More options").click()
    await page.get_by_label("Sheet of the workbook").focus()
    await page.keyboard.press("Enter")
    await ends(page, "nothing has changed yet")


async def test_a_late_word_about_a_file_does_not_hide_what_became_of_it(house: House, visit: Visit) -> None:
    file = sheets.csv(sheets.good(2, "late.example"))
    visitor = await visit(house, "operator", "/imports")
    visitor.expects("status of 409")
    page = visitor.page
    await send(page, file)
    await ends(page, "All 2 rows were imported.")
    await visitor.go("/imports")
    told = asyncio.Event()

    async def late(route: Route) -> None:
        await told.wait()
        await route.continue_()

    await page.route(re.compile(r"/imports\?file="), late)
    await send(page, file)
    again = page.get_by_role("button", name="Import it again")
    await expect(again).to_be_visible()
    async with page.expect_response(re.compile(r"/imports\?file=")) as word:
        told.set()
    await (await word.value).finished()
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await expect(again).to_be_visible()


async def test_who_presses_twice_imports_once(house: House, visit: Visit) -> None:
    rows = sheets.good(2, "double.example")
    await upload(house, rows, force="false")
    check = await upload(house, rows, name="customers-double.csv", dryRun="true")
    page = (await visit(house, "operator", f"/imports/{check}")).page
    await page.get_by_role("button", name="Import all rows now").click()
    again = page.get_by_role("button", name="Import it again")
    taken = await again.evaluate(
        """button => {
            const about = {submitter: button, bubbles: true, cancelable: true};
            const goes = () => button.form.dispatchEvent(new SubmitEvent("submit", about));
            const first = [goes(), goes()];
            dispatchEvent(new PageTransitionEvent("pageshow"));
            return [...first, goes(), dispatchEvent(new PageTransitionEvent("pageshow"))];
        }"""
    )
    assert taken == [True, False, True, True]
    posts = posted(page)
    await again.dblclick()
    await ends(page, "All 2 rows were already in the table.")
    assert len(posts) == 1


async def test_a_double_click_posts_once_even_if_the_answer_is_in_between(house: House, visit: Visit) -> None:
    (job_id,) = await house.dead(reason="clicked twice")
    page = (await visit(house, "operator", f"/jobs/{job_id}")).page
    posts = posted(page)
    button = page.get_by_role("button", name="Retry")
    box = await button.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down(click_count=2)  # as the second click comes to a page that has just been made
    await page.mouse.up(click_count=2)
    await page.mouse.click(x, y)
    await expect(page.get_by_role("status").filter(has_text="queued again")).to_be_visible()
    assert len(posts) == 1


async def test_what_was_posted_may_be_posted_again_after_the_answer(house: House, visit: Visit) -> None:
    (job_id,) = await house.dead(reason="retried twice")
    page = (await visit(house, "operator", f"/jobs/{job_id}")).page
    for _ in range(2):
        await expect(page.locator("#now .status")).to_have_text("failed")
        await page.get_by_role("button", name="Retry").click()
        await expect(page.get_by_role("status").filter(has_text="queued again")).to_be_visible()
    await house.reaches(job_id, "failed")


async def test_an_address_in_a_cell_is_not_broken_while_there_is_room(house: House, visit: Visit) -> None:
    long = "bartholomew.featherstonehaugh@example.org"
    wrong = await upload(house, [(long, "B", "Germany", "1")])
    page = (await visit(house, "viewer", f"/imports/{wrong}", viewport={"width": 1280, "height": 800})).page
    cell = page.locator("#errors .cell").filter(has_text=long)
    assert await cell.evaluate("each => Math.round(each.getBoundingClientRect().height / 1.5 / 13.5)") == 1
    await page.set_viewport_size({"width": 390, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await cell.evaluate("each => each.getBoundingClientRect().right <= innerWidth")


async def test_a_file_that_cannot_be_used_is_refused_with_what_to_do(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator", "/imports")
    visitor.expects(r"status of 4\d\d")
    page = visitor.page
    choose = page.get_by_label(re.compile("^Drag a file here"))
    await choose.set_input_files({"name": "holiday.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8\xff"})
    await expect(page.locator("#answer")).to_contain_text(re.compile(r"\.csv|\.xlsx"))
    await send(page, {"name": "customers.xlsx", "mimeType": "application/octet-stream", "buffer": b"no workbook"})
    await expect(page.locator("#answer")).to_contain_text("xlsx")
    await expect(page).to_have_url(re.compile("/imports$"))
    await page.get_by_label("What is in the file").select_option("customers")
    await send(page, {"name": "list.csv", "mimeType": "text/csv", "buffer": b"Colour,Mail\r\nred,ada@example.org\r\n"})
    await expect(page.locator("#columns")).to_contain_text("Colour")
    await expect(page.locator("#columns")).to_contain_text("name")


async def test_the_type_is_found_by_the_name_and_its_columns_are_shown(house: House, visit: Visit) -> None:
    page = (await visit(house, "operator", "/imports")).page
    choose = page.get_by_label(re.compile("^Drag a file here"))
    await choose.set_input_files(sheets.csv(sheets.good(1), "Price-List-2026.csv"))
    await expect(page.get_by_label("What is in the file")).to_have_value("priceList")
    await expect(page.locator("details[data-type=priceList]")).to_have_attribute("open", "")
    await choose.set_input_files(sheets.csv(sheets.good(1), "Customers.csv"))
    await expect(page.get_by_label("What is in the file")).to_have_value("customers")
    async with page.expect_download() as downloading:
        await page.locator("details[data-type=customers]").get_by_role("link", name="Download a template").click()
    header = (await (await downloading.value).path()).read_text(encoding="utf-8-sig")
    assert header.replace('"', "").startswith("email,name,phone,")


async def test_a_file_is_dropped_onto_the_page(house: House, visit: Visit) -> None:
    page = (await visit(house, "operator", "/imports")).page
    text = sheets.csv(sheets.good(4, "dropped.example"))["buffer"].decode()
    await page.locator(".drop").evaluate(
        """(box, text) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([text], "customers-dropped.csv", {type: "text/csv"}));
            for (const kind of ["dragenter", "dragover", "drop"])
                box.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer}));
        }""",
        text,
    )
    await expect(page.get_by_label("What is in the file")).to_have_value("customers")
    await page.get_by_role("button", name="Check first").click()
    await ends(page, "All 4 rows can be imported.")
    await expect(page.get_by_role("heading", level=1)).to_have_text("customers-dropped.csv")


async def test_an_import_appears_in_the_list_of_somebody_else(house: House, visit: Visit) -> None:
    office = (await visit(house, "operator", "/imports")).page
    boss = (await visit(house, "viewer", "/imports")).page
    await expect(boss.get_by_role("heading", name="All imports")).to_be_visible()
    await send(office, sheets.csv(sheets.good(2, "seen.example"), "customers-seen-by-all.csv"))
    row = boss.locator("#list tbody tr").filter(has_text="customers-seen-by-all.csv")
    await expect(row).to_contain_text("succeeded")


async def test_a_file_that_is_being_sent_can_be_stopped(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator", "/imports")
    page = visitor.page
    client = await visitor.context.new_cdp_session(page)
    await client.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 20_000},
    )
    await send(page, sheets.csv(sheets.good(30_000, "slow.example"), "customers-slow.csv"))
    await expect(page.locator("#sending")).to_contain_text(
        re.compile(r"Uploading customers-slow.csv: [\d.]+ of [\d.]+ MB")
    )
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#answer")).to_contain_text("Nothing was stored")
    await expect(page.get_by_role("button", name="Check first")).to_be_enabled()
    listed = await house.get("/api/v1/import-jobs")
    assert "customers-slow.csv" not in str(listed)

"""Jobs in the browser: search, follow, cancel, run now; dead letters are retried and discarded, one or many."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.house import House


async def shows(page: Page, status: str) -> None:
    """The page of a job says so, without being loaded again by us."""
    await expect(page.locator("#now .status")).to_have_text(status)


async def press(page: Page, name: str | re.Pattern[str]) -> None:
    await page.get_by_role("button", name=name, exact=isinstance(name, str)).click()


# -- one job ---------------------------------------------------------------------------------------


async def test_a_dead_job_is_retried_when_its_cause_is_gone(any_house: House, visit: Visit) -> None:
    mended = any_house.folder / "one"
    (job_id,) = await any_house.dead(mended=str(mended), reason="the printer is out of paper")
    page = (await visit(any_house, "operator", f"/jobs/{job_id}")).page
    await shows(page, "failed")
    await expect(page.locator("#now")).to_contain_text("the printer is out of paper")
    mended.touch()
    await press(page, "Retry")
    await expect(page.get_by_role("status").filter(has_text="queued again")).to_be_visible()
    await shows(page, "succeeded")
    await expect(page.locator("#timeline")).to_contain_text("Retried by a person")
    await expect(page.locator("#result")).to_contain_text('"sent": 0')


async def test_a_running_job_is_cancelled(any_house: House, visit: Visit) -> None:
    job_id = await any_house.enqueue("demo.sleep", {"seconds": 600})
    page = (await visit(any_house, "operator", f"/jobs/{job_id}")).page
    await shows(page, "processing")
    await expect(page.locator("#now")).to_contain_text(re.compile(r"slept \d+\.\d of 600\.0 s"))
    await press(page, "Request cancellation")
    await shows(page, "cancelled")
    assert (await any_house.job(job_id))["status"] == "cancelled"
    await expect(page.locator("#timeline")).to_contain_text("Cancelled")


async def test_a_job_that_waits_for_its_time_is_run_now(any_house: House, visit: Visit) -> None:
    job_id = await any_house.enqueue("healthPing", delaySeconds=3_600)
    page = (await visit(any_house, "operator", f"/jobs/{job_id}")).page
    await shows(page, "queued")
    await expect(page.locator("#now time").first).to_have_text(re.compile(r"in (59 min|1 h)"))
    await press(page, "Run now")
    await shows(page, "succeeded")


async def test_a_job_that_waits_is_cancelled_and_changed_minds_are_possible(house: House, visit: Visit) -> None:
    job_id = await house.enqueue("healthPing", delaySeconds=3_600)
    page = (await visit(house, "operator", f"/jobs/{job_id}")).page
    await press(page, "Cancel")
    await shows(page, "cancelled")
    await press(page, "Retry")
    await shows(page, "succeeded")


async def test_the_slower_of_two_people_sees_that_nothing_was_changed(house: House, visit: Visit) -> None:
    job_id = await house.enqueue("healthPing", delaySeconds=3_600)
    visitor = await visit(house, "operator", f"/jobs/{job_id}", java_script_enabled=False)
    await house.ask("POST", f"/api/v1/queue/{job_id}/cancel")
    await house.reaches(job_id, "cancelled")
    await press(visitor.page, "Run now")
    await expect(visitor.page.get_by_role("alert")).to_contain_text("Nothing was changed")
    await shows(visitor.page, "cancelled")


async def test_secrets_are_shown_to_administrators_who_ask_for_them(house: House, visit: Visit) -> None:
    job_id = await house.enqueue("note", {"password": "open sesame", "to": "ada"})
    page = (await visit(house, "operator", f"/jobs/{job_id}")).page
    await expect(page.locator("#payload")).to_contain_text('"to": "ada"')
    assert "open sesame" not in await page.content()
    page = (await visit(house, "admin", f"/jobs/{job_id}")).page
    assert "open sesame" not in await page.content()
    await page.get_by_role("link", name=re.compile("with secrets")).click()
    await expect(page.locator("#payload")).to_contain_text("open sesame")


# -- finding ---------------------------------------------------------------------------------------


async def test_jobs_are_found_by_status_type_company_and_id(house: House, visit: Visit) -> None:
    company = "finding"
    (dead,) = await house.dead(company=company)
    done = await house.enqueue("healthPing", companyId=company)
    await house.reaches(done, "succeeded")
    page = (await visit(house, "viewer", "/jobs")).page
    rows = page.locator("#list tbody tr")
    await page.get_by_label("Company").fill(company)
    await press(page, "Show")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Status").select_option("failed")
    await press(page, "Show")
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("invoice.send")
    await page.get_by_label("Type").fill("health*")
    await press(page, "Show")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    await page.get_by_role("link", name="Show all jobs").click()
    await page.get_by_label("Job id").fill(f" {dead} ")
    await page.get_by_label("Job id").press("Enter")
    await expect(page).to_have_url(re.compile(f"/jobs/{dead}$"))
    await shows(page, "failed")


async def test_an_id_that_is_none_is_told(house: House, visit: Visit) -> None:
    visitor = await visit(house, "viewer", "/jobs")
    visitor.expects("status of 404")
    page = visitor.page
    await page.get_by_label("Job id").fill("4711")
    await page.get_by_label("Job id").press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("not a job id")
    await visitor.go("/jobs/4711")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.get_by_role("link", name="To the overview")).to_be_visible()


# -- dead letters ----------------------------------------------------------------------------------


async def test_a_group_is_retried_after_it_was_said_how_many_there_are(any_house: House, visit: Visit) -> None:
    mended = any_house.folder / "group"
    reason = "the mail server was switched off"
    ids = await any_house.dead(3, mended=str(mended), reason=reason)
    (other,) = await any_house.dead(reason="quite another reason")
    page = (await visit(any_house, "operator", "/dead")).page
    group = page.locator(".group").filter(has_text=reason)
    await expect(group).to_contain_text("3 jobs")
    await group.get_by_role("link", name=re.compile("^Retry")).click()
    await expect(page.get_by_text("3 dead letters match.")).to_be_visible()
    assert {(await any_house.job(each))["status"] for each in ids} == {"failed"}
    mended.touch()
    await press(page, "Retry 3 jobs")
    await expect(page.get_by_role("status").filter(has_text="3 jobs are queued again.")).to_be_visible()
    for job_id in ids:
        await any_house.reaches(job_id, "succeeded")
    await expect(page.get_by_text(reason)).to_have_count(0)
    assert (await any_house.job(other))["status"] == "failed"


async def test_some_of_a_group_are_chosen_and_retried(house: House, visit: Visit) -> None:
    mended = house.folder / "chosen"
    ids = await house.dead(3, mended=str(mended), reason="some of these are chosen")
    page = (await visit(house, "operator", "/dead")).page
    await (
        page.locator(".group").filter(has_text="some of these are chosen").get_by_role("link", name="See them").click()
    )
    boxes = page.get_by_role("checkbox")
    await expect(boxes).to_have_count(3)
    chosen = [await boxes.nth(index).get_attribute("value") for index in (0, 2)]
    await boxes.nth(0).check()
    await boxes.nth(2).check()
    mended.touch()
    await press(page, "Retry the selected jobs…")
    await press(page, "Retry 2 jobs")
    await expect(page.get_by_role("status").filter(has_text="2 jobs are queued again.")).to_be_visible()
    for job_id in ids:
        await house.reaches(job_id, "succeeded" if job_id in chosen else "failed")


async def test_one_is_discarded_after_a_second_look(any_house: House, visit: Visit) -> None:
    (job_id,) = await any_house.dead(reason="nobody needs it any more")
    page = (await visit(any_house, "operator", f"/jobs/{job_id}")).page
    await page.get_by_role("link", name="Discard…").click()
    await expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    await page.get_by_role("link", name="Go back").click()
    await shows(page, "failed")
    await page.get_by_role("link", name="Discard…").click()
    await press(page, "Discard it")
    await expect(page.get_by_role("status").filter(has_text="1 job is deleted.")).to_be_visible()
    assert (await any_house.ask("GET", f"/api/v1/queue/{job_id}")).status_code == 404

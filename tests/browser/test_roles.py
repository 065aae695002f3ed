"""Actions that a role does not allow are not offered, and are refused when requested directly."""

from __future__ import annotations

from playwright.async_api import Page, expect

from browser import sheets
from browser.conftest import Visit
from browser.house import House
from browser.scene import upload

REFUSED = "status of 40[34]"


async def actions(page: Page) -> list[str]:
    """What the page offers to do: buttons of forms that post, and links to forms that do."""
    found: list[str] = await page.evaluate(
        """() => [
            ...[...document.forms].filter(form => form.method === "post").flatMap(form => [...form.elements])
                .filter(each => each.localName === "button").map(each => each.innerText.trim()),
            ...[...document.querySelectorAll("main a")].map(each => each.innerText.trim())
                .filter(text => /^(Retry|Discard|Upload)/.test(text)),
        ]"""
    )
    return found


async def post(page: Page, path: str, **fields: str) -> int:
    """The status of a form that is sent although the page has none."""
    status: int = await page.evaluate(
        """async ([path, fields]) =>
            (await fetch(path, {method: "POST", body: new URLSearchParams(fields), redirect: "manual"})).status""",
        [path, fields],
    )
    return status


async def test_a_viewer_sees_everything_and_no_buttons(any_house: House, visit: Visit) -> None:
    (dead,) = await any_house.dead(reason="for viewers")
    running = await any_house.enqueue("demo.sleep", {"seconds": 600})
    delayed = await any_house.enqueue("healthPing", delaySeconds=3_600)
    bad = await upload(any_house, sheets.bad(3, "viewer.example"), dryRun="true")
    loaded = await upload(any_house, sheets.bad(3, "viewer.example"))
    await any_house.reaches(running, "processing")
    visitor = await visit(any_house, "viewer")
    page = visitor.page
    for path in ("/", "/jobs", *(f"/jobs/{each}" for each in (dead, running, delayed)), "/dead", "/imports"):
        await visitor.go(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await actions(page) == ["Sign out"], path
    for path in (
        f"/imports/{bad}",
        f"/imports/{bad}?before={loaded}",
        f"/imports/{loaded}?before={bad}",
        "/sync",
        "/sync/crm",
        "/dead?type=invoice.send&reason=for+viewers",
    ):
        await visitor.go(path)
        assert await actions(page) == ["Sign out"], path
    visitor.expects(REFUSED)
    for path in (f"/jobs/{dead}/retry", f"/jobs/{running}/cancel", f"/jobs/{delayed}/run-now"):
        assert await post(page, path) == 403, path
    for path in ("/dead/retry", "/dead/discard"):
        assert await post(page, path, type="invoice.send") == 403, path
    for path in (f"/imports/{bad}/import", f"/imports/{bad}/cancel", f"/imports/{bad}/resume"):
        assert await post(page, path) == 403, path
    assert [(await any_house.job(each))["status"] for each in (dead, running, delayed)] == [
        *("failed", "processing", "queued")
    ]
    await any_house.ask("POST", f"/api/v1/queue/{running}/cancel")


async def test_a_viewer_who_knows_the_address_is_told_why_not(house: House, visit: Visit) -> None:
    visitor = await visit(house, "viewer")
    visitor.expects(REFUSED)
    for path in ("/dead/discard?all=1", "/dead/retry?all=1"):
        page = await visitor.go(path)
        await expect(page.get_by_role("main")).to_contain_text("operator")
        assert await actions(page) == ["Sign out"]


async def test_a_token_of_one_company_sees_only_its_own(any_house: House, visit: Visit) -> None:
    mine, theirs = "mine-and-only-mine", "theirs-and-only-theirs"
    jobs = {name: await any_house.enqueue("healthPing", companyId=name) for name in (mine, theirs)}
    dead = {name: (await any_house.dead(reason=f"dead of {name}", company=name))[0] for name in (mine, theirs)}
    files = {
        name: await upload(any_house, sheets.good(2, f"{name}.example"), name=f"customers-{name}.csv", companyId=name)
        for name in (mine, theirs)
    }
    token = await any_house.token("operator", mine)
    visitor = await visit(any_house, token)
    page = visitor.page
    for path in ("/", "/jobs", "/dead", "/imports", "/sync"):
        await visitor.go(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        text = await page.content()
        assert theirs not in text, path
        assert jobs[theirs] not in text, path
        if path != "/sync":
            assert mine in text, path
    visitor.expects(REFUSED)
    for path in (f"/jobs/{jobs[theirs]}", f"/jobs/{dead[theirs]}", f"/imports/{files[theirs]}"):
        await visitor.go(path)
        assert theirs not in await page.content(), path
        await expect(page.get_by_role("link", name="To the overview")).to_be_visible()
    assert await post(page, f"/jobs/{dead[theirs]}/retry") == 404
    await visitor.go("/dead/retry?all=1")
    await expect(page.get_by_text("1 dead letter matches.")).to_be_visible()
    await visitor.go(f"/jobs?companyId={theirs}")
    assert jobs[theirs] not in await page.content()


async def test_an_operator_is_offered_what_operators_may_do(house: House, visit: Visit) -> None:
    (dead,) = await house.dead(reason="for operators")
    page = (await visit(house, "operator", f"/jobs/{dead}")).page
    assert sorted(await actions(page)) == ["Discard…", "Retry", "Sign out"]


async def test_empty_pages_say_what_to_do(house: House, visit: Visit) -> None:
    visitor = await visit(house, await house.token("operator", "a-company-without-anything"))
    page = visitor.page
    for path, words in {
        "/": "a-company-without-anything",
        "/jobs": "There are no jobs yet",
        "/dead": "No job has failed.",
        "/imports": "Nothing was imported yet",
    }.items():
        await visitor.go(path)
        await expect(page.get_by_role("main")).to_contain_text(words)

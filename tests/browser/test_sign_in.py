"""Signing in and out: with the form, with the link of the terminal, with wrong, expired and revoked tokens."""

from __future__ import annotations

import re
import time

from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.house import House
from rowlock.control import tokens

NOT_SIGNED_IN = r"status of 40[13]"


async def fill(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def signed_in(page: Page, path: str = "/") -> None:
    await expect(page).to_have_url(re.compile(rf"127\.0\.0\.1:\d+{re.escape(path)}$"))
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()


async def asked_to_sign_in(page: Page) -> None:
    await expect(page).to_have_url(re.compile(r"/sign-in(\?|$)"))
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_the_form_takes_a_token_and_leads_to_what_was_asked_for(any_house: House, visit: Visit) -> None:
    visitor = await visit(any_house)
    page = await visitor.go("/jobs?status=failed")
    await asked_to_sign_in(page)
    await fill(page, await any_house.token("operator"))
    await signed_in(page, "/jobs?status=failed")
    (cookie,) = await visitor.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("rowlock_session", True, "Strict")
    assert await page.evaluate("document.cookie") == ""


async def test_the_link_of_the_terminal_signs_in_and_leaves_no_token_in_the_address(
    any_house: House, visit: Visit
) -> None:
    visitor = await visit(any_house)
    page = await visitor.go(any_house.told["open"])
    await signed_in(page)
    assert any_house.admin not in page.url
    assert any_house.admin not in await page.content()
    await page.reload()
    await signed_in(page)


async def test_a_wrong_token_is_told_and_can_be_corrected(house: House, visit: Visit) -> None:
    visitor = await visit(house)
    visitor.expects(NOT_SIGNED_IN)
    page = await visitor.go("/sign-in?next=/imports")
    await fill(page, "rlk_not_a_token_of_ours")
    await expect(page.get_by_role("alert")).to_contain_text(re.compile("unknown|expired|revoked"))
    await asked_to_sign_in(page)
    await fill(page, f"  {await house.token('viewer')} ")
    await signed_in(page, "/imports")


async def test_who_signs_out_is_out(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator")
    page = visitor.page
    await page.get_by_role("button", name="Sign out").click()
    await asked_to_sign_in(page)
    assert await visitor.context.cookies() == []
    await visitor.go("/jobs")
    await asked_to_sign_in(page)


async def test_a_revoked_token_leads_to_the_sign_in_page_which_says_so(house: House, visit: Visit) -> None:
    visitor = await visit(house, "operator")
    visitor.expects(NOT_SIGNED_IN)
    await signed_in(visitor.page)
    await tokens.revoke(house.store, house.token_id)
    await visitor.go("/jobs")
    await asked_to_sign_in(visitor.page)
    await expect(visitor.page.get_by_role("alert")).to_contain_text(re.compile("expired|revoked"))


async def test_a_session_ends_with_its_token(house: House, visit: Visit) -> None:
    before = time.time()
    visitor = await visit(house, await house.token("viewer", seconds=3_600))
    await signed_in(visitor.page)
    (cookie,) = await visitor.context.cookies()
    assert before + 3_595 < cookie["expires"] < time.time() + 3_600, "the browser ends it with the token"
    await visitor.context.add_cookies([{**cookie, "expires": time.time() + 1}])

    async def over() -> bool:
        return await visitor.context.cookies() == []

    await house.until(over, "the cookie ends")
    await visitor.go("/jobs")
    await asked_to_sign_in(visitor.page)


async def test_nobody_is_led_elsewhere_after_signing_in(house: House, visit: Visit) -> None:
    visitor, token = await visit(house), await house.token("viewer")
    for elsewhere in ("https://example.org/", "//example.org/", "/\\example.org", "javascript:alert(1)"):
        await visitor.sign_in(token, elsewhere)
        await signed_in(visitor.page)
        await visitor.context.clear_cookies()


async def test_another_site_cannot_sign_a_visitor_in_or_post_for_them(house: House, visit: Visit) -> None:
    """A page of another origin (another port is one) sends a form and a link."""
    visitor = await visit(house, "operator")
    visitor.expects(r"status of 40\d", "outside request", "Content Security Policy")
    (job_id,) = await house.dead()
    page = visitor.page
    other = house.url.replace("127.0.0.1", "localhost")
    await visitor.context.route(
        f"{other}/evil",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"<form method=post action='{house.url}/jobs/{job_id}/retry'><button>Win</button></form>"
            f"<a href='{house.url}/sign-in?token={house.admin}'>Prize</a>",
        ),
    )
    await page.goto(f"{other}/evil")
    await page.get_by_role("button", name="Win").click()
    await page.wait_for_url(f"{house.url}/**")
    assert (await house.job(job_id))["status"] == "failed"
    await visitor.context.clear_cookies()
    await page.goto(f"{other}/evil")
    await page.get_by_role("link", name="Prize").click()
    await page.wait_for_url(f"{house.url}/**")
    assert await visitor.context.cookies() == []

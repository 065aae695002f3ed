"""The rig itself: what must not happen on a page fails a test."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Route

from browser.house import House
from browser.visitor import Visitor

CSP = "default-src 'none'; script-src 'self'; style-src 'self'"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>1</script>", "Content Security Policy"),
        ("<p style='color: red'>", "Content Security Policy"),
        ("<script src='/broken.js'></script>", "page error"),
        ("<script src='/loud.js'></script>", "console error: oh"),
        ("<link rel=stylesheet href='/missing.css'>", "404"),
        ("<form action='http://example.org/' method=get><button>", "outside request: http://example.org/"),
    ],
)
async def test_what_must_not_happen_on_a_page_is_seen(browser: Browser, house: House, body: str, fault: str) -> None:
    async def answer(route: Route) -> None:
        match route.request.url.rpartition("/")[2]:
            case "broken.js":
                await route.fulfill(body="nothing.here()", content_type="text/javascript")
            case "loud.js":
                await route.fulfill(body="console.error('oh')", content_type="text/javascript")
            case "bad":
                await route.fulfill(
                    body=f"<!doctype html><title>x</title>{body}",
                    headers={"content-type": "text/html", "content-security-policy": CSP},
                )
            case _:
                await route.fulfill(status=404)

    async def look() -> None:
        async with Visitor(browser, house) as visitor:
            await visitor.context.route("**/*", answer)
            page = await visitor.go("/bad")
            if "button" in body:
                await page.get_by_role("button").click()

    with pytest.raises(AssertionError, match=fault):
        await look()

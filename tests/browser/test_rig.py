"""The test setup itself: errors on a page fail a test."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Route

from browser.house import House
from browser.test_looks import crowded, findings, sideways
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


async def test_what_some_people_cannot_use_is_found(browser: Browser, house: House) -> None:
    """The checks of test_looks are shown to find what they are for."""
    body = """<html lang=en><title>x</title><main><h1>x</h1><link rel=stylesheet href=/pale.css>
        <p class=pale>pale</p><img src=/x.png><input id=a><a id=b href=/>on top</a><div id=wide>wide</div>
        <table><thead><tr><th>a<th>b</thead><tbody><tr><td>1<td>2</tbody></table></main>"""
    css = """.pale { color: #bbb; background: #fff } #wide { width: 5000px } #a, #b { position: absolute; top: 99px }
        thead { display: block; padding-left: 40px }"""

    async def answer(route: Route) -> None:
        kind = "text/css" if route.request.url.endswith(".css") else "text/html"
        await route.fulfill(body=css if kind == "text/css" else f"<!doctype html>{body}", content_type=kind)

    async with Visitor(browser, house) as visitor:
        await visitor.context.route("**/*", answer)
        page = await visitor.go("/bad")
        found = " ".join([*await findings(page), *await crowded(page), *await sideways(page)])
    for word in ("color-contrast", "image-alt", "label", "on top of each other", "not above its column", "sideways"):
        assert word in found, word

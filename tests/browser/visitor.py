"""A person with their own browser: what they see, and any errors meanwhile."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, expect

from browser.house import House

SEEN_MS = 60_000.0

expect.set_options(timeout=SEEN_MS)


class Visitor:
    """A context of the browser: cookies, pages and faults of its own. Faults that were not expected fail the test."""

    def __init__(self, browser: Browser, house: House, **options: Any) -> None:
        self._browser = browser
        self.house = house
        self._options = {"base_url": house.url, "locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce"}
        self._options |= options
        self.faults: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    async def __aenter__(self) -> Self:
        self.context: BrowserContext = await self._browser.new_context(**self._options)
        self.context.set_default_timeout(SEEN_MS)
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.faults.append(f"page error: {error.error}"))
        self.context.on("request", self._asked)
        self.context.on("response", self._answered)
        self.page: Page = await self.context.new_page()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.context.close()
        if kind is None and (faults := self.unexpected()):
            raise AssertionError("\n".join([*faults, *self.house.complaints()]))

    # -- what goes wrong ---------------------------------------------------------------------------

    def expects(self, *patterns: str) -> None:
        """Faults like these are what the test is about."""
        self._expected += [re.compile(pattern) for pattern in patterns]

    def unexpected(self) -> list[str]:
        return [fault for fault in self.faults if not any(pattern.search(fault) for pattern in self._expected)]

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.house.url + "/"):
            self.faults.append(f"outside request: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.faults.append(f"answer: {response.status} {response.url}")

    # -- what they do ------------------------------------------------------------------------------

    async def sign_in(self, token: str, path: str = "/") -> Page:
        """Follow the link that a terminal shows, to this page."""
        await self.page.goto(f"/sign-in?token={token}&next={quote(path, safe='')}")
        return self.page

    async def go(self, path: str) -> Page:
        await self.page.goto(path)
        return self.page

"""A page reduced to its text, its links and its buttons."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx

from web.site import Site

_EMPTY = {"meta", "link", "input", "br", "hr", "img", "path"}
_UNSAID = {"script", "style", "title", "option", "time"}


@dataclass
class Form:
    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[str] = field(default_factory=list)


class Paper(HTMLParser):
    """What is on a page. Raises where its tags do not close in the order in which they were opened."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(convert_charrefs=True)
        assert answer.headers["content-type"] == "text/html; charset=utf-8", answer.headers
        self.status = answer.status_code
        self.links: dict[str, str] = {}  # the first of each text
        self.hrefs: list[str] = []
        self.forms: list[Form] = []
        self.ids: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._said: list[str] = []
        self._part: dict[str, list[str]] = {}
        self._link: list[str] = []
        self.feed(answer.text)
        self.close()
        assert not self._open, self._open

    @property
    def text(self) -> str:
        """All words, with single spaces."""
        return " ".join(" ".join(self._said).split())

    def part(self, id: str) -> str:
        """The words of one element."""
        return " ".join(" ".join(self._part[id]).split())

    @property
    def buttons(self) -> list[str]:
        return [label for form in self.forms for label in form.buttons]

    def form(self, button: str) -> Form:
        """The form that this button sends."""
        return next(form for form in self.forms if button in form.buttons)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in given), (tag, given)
        if given.get("id"):
            self.ids.append(str(given["id"]))
            self._part[str(given["id"])] = []
        if tag == "form":
            self.forms.append(Form(given.get("action") or "", given.get("method") or "get"))
        elif tag in ("input", "select") and self.forms and any(name == "form" for name, _ in self._open):
            self.forms[-1].fields.append((given.get("name") or "", given.get("value") or ""))
        elif tag in ("a", "button"):
            self._link = []
        if tag not in _EMPTY:
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        if tag in _EMPTY:
            return
        opened, given = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        words = " ".join("".join(self._link).split())
        if tag == "a" and given.get("href"):
            self.links.setdefault(words, str(given["href"]))
            self.hrefs.append(str(given["href"]))
        elif tag == "button":
            self.forms[-1].buttons.append(words)

    def handle_data(self, data: str) -> None:
        if any(name in _UNSAID for name, _ in self._open if name != "time"):
            return
        self._said.append(data)
        self._link.append(data)
        for _, given in self._open:
            if given.get("id"):
                self._part[str(given["id"])].append(data)


async def paper(site: Site, path: str, token: str = "admin", status: int = 200, **request: Any) -> Paper:
    """The page at a path."""
    answer = await site.get(path, token, **request)
    assert answer.status_code == status, answer.text
    return Paper(answer)


async def post(site: Site, path: str, token: str = "operator", **fields: Any) -> httpx.Response:
    """What a form gets that is sent with these fields."""
    return await site.ask("POST", path, token, data=fields)


async def press(site: Site, page: Paper, button: str, token: str = "operator") -> Paper:
    """The page that a button of a page leads to."""
    form = page.form(button)
    return await after(site, await post(site, form.action, token, **dict(form.fields)), token)


async def after(site: Site, answer: httpx.Response, token: str = "operator") -> Paper:
    """The page that an answer leads to."""
    assert answer.status_code == 303, answer.text
    return Paper(await site.get(answer.headers["location"], token))

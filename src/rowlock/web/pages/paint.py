"""Painting: templates, what all of them may use, and the headers that every page has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from rowlock.app import Rowlock
from rowlock.storage.access import Role
from rowlock.web.cookie import put
from rowlock.web.guard import Caller, path_of
from rowlock.web.pages import assets, words
from rowlock.web.pages.shared import shared
from rowlock.web.problem import Problem

_NOTICE, _NOTICE_SECONDS, _NOTICE_MAX = "rowlock_notice", 30, 500
_NOTICE_BYTES = 1_200  # three times as many when quoted: browsers keep no cookie of more than 4 kB
_FIELDS_MAX = 2_000

_HEADERS = {
    "cache-control": "private, no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # Not "no-referrer": a form would be sent with the Origin "null" then, and that is what we go by.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class May:
    """What the caller may do: what they may not is not offered."""

    operate: bool
    administer: bool


def page(
    request: Request,
    caller: Caller | None,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **data: Any,
) -> Response:
    """A page for this caller; the template finds `at`, `may`, `scoped`, `here` and this data."""
    scope = request.scope
    kind, notice = _notice(request)
    role = caller.token.role if caller else None
    body = _ENVIRONMENT.get_template(template).render(
        {
            "at": partial(at, scope),
            "asset": lambda name: at(scope, assets.address(name)),
            "may": May(bool(role and role.covers(Role.OPERATOR)), bool(role and role.covers(Role.ADMIN))),
            "scoped": caller is not None and caller.token.company_id is not None,
            "token": caller and caller.token,
            "here": path_of(scope),
            "now": datetime.now(UTC),
            "notice": notice,
            "notice_kind": kind,
            "live": None,  # what to listen to: an address of the API's events, and the names of the events that matter
            "live_on": None,
            **data,
        }
    )
    answer = Response(body, status, {**_HEADERS, **(headers or {})}, "text/html")
    if notice:
        put(answer, scope, _NOTICE, "", 0)
    return answer


def back(request: Request, path: str, notice: str = "", kind: str = "good") -> Response:
    """After a post: go to a page of ours, which says once what was done, or why not."""
    shared(request).forget()
    answer = RedirectResponse(at(request.scope, path), 303, {"cache-control": "no-store"})
    if notice:
        said = notice[:_NOTICE_MAX].encode(errors="replace")[:_NOTICE_BYTES].decode(errors="ignore")
        put(answer, request.scope, _NOTICE, f"{kind}.{quote(said, safe='')}", _NOTICE_SECONDS)
    return answer


def at(scope: Scope, path: str, **query: Any) -> str:
    """The address of a path of ours, wherever we are mounted, with what of this query is not None."""
    given = urlencode({name: value for name, value in query.items() if value is not None})
    return str(scope.get("root_path", "")) + path + (f"?{given}" if given else "")


def fields(request: Request) -> FormData:
    """What a form of a page has sent; a name may come more than once."""
    try:
        text = request.scope["rowlock.body"].decode()
        return FormData(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"))
    except ValueError:
        raise Problem("malformed_form", "the form cannot be read") from None


def rowlock(request: Request) -> Rowlock:
    """The application whose pages these are."""
    found: Rowlock = request.app.state.rowlock
    return found


def _notice(request: Request) -> tuple[str, str]:
    """What the page before wanted to be said here; a page that is fetched to be compared does not say it."""
    kind, _, text = request.cookies.get(_NOTICE, "").partition(".")
    if request.headers.get("x-rowlock-live"):
        return "", ""
    return ("bad" if kind == "bad" else "good"), unquote(text)[:_NOTICE_MAX]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= words.FILTERS
    return made


_ENVIRONMENT = _environment()

"""Renders templates: their common variables, and the headers of every page."""

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
from rowlock.dashboard import assets
from rowlock.dashboard import filters as words
from rowlock.dashboard.shared_reads import shared
from rowlock.http.middleware.auth import Caller, path_of
from rowlock.http.middleware.session_cookie import put
from rowlock.http.problem import Problem
from rowlock.storage.access import Role

_NOTICE, _NOTICE_SECONDS, _NOTICE_MAX = "rowlock_notice", 30, 500
_NOTICE_BYTES = 1_200  # up to three times as many when quoted; browsers drop cookies of more than 4 kB
_FIELDS_MAX = 2_000

_HEADERS = {
    "cache-control": "private, no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # Not "no-referrer": forms would then send the Origin "null", which the cross-site check refuses.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class May:
    """What the caller's role allows; pages offer nothing else."""

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
    """Render a page for this caller; the template gets `data` and common variables such as `at`, `may` and `here`."""
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
            "live": None,  # the address of the API's events to listen to; `live_on` names those that matter
            "live_on": None,
            "refresh_ms": lambda: rowlock(request).settings.http_refresh_ms,
            **data,
        }
    )
    answer = Response(body, status, {**_HEADERS, **(headers or {})}, "text/html")
    if notice:
        put(answer, scope, _NOTICE, "", 0)
    return answer


def back(request: Request, path: str, notice: str = "", kind: str = "good") -> Response:
    """Redirect after a POST to a page that shows `notice` once; also drops all shared answers."""
    shared(request).forget()
    answer = RedirectResponse(at(request.scope, path), 303, {"cache-control": "no-store"})
    if notice:
        said = notice[:_NOTICE_MAX].encode(errors="replace")[:_NOTICE_BYTES].decode(errors="ignore")
        put(answer, request.scope, _NOTICE, f"{kind}.{quote(said, safe='')}", _NOTICE_SECONDS)
    return answer


def at(scope: Scope, path: str, **query: Any) -> str:
    """Return the address of a path below the mount point, with the query values that are not None."""
    given = urlencode({name: value for name, value in query.items() if value is not None})
    return str(scope.get("root_path", "")) + path + (f"?{given}" if given else "")


def fields(request: Request) -> FormData:
    """Return the fields of a sent form, in which a name may repeat; raises Problem if it is malformed."""
    try:
        text = request.scope["rowlock.body"].decode()
        return FormData(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"))
    except ValueError:
        raise Problem("malformed_form", "the form cannot be read") from None


def rowlock(request: Request) -> Rowlock:
    """Return the application that the pages belong to."""
    found: Rowlock = request.app.state.rowlock
    return found


def _notice(request: Request) -> tuple[str, str]:
    """Return kind and text of the notice that the page before left; empty for live refreshes."""
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

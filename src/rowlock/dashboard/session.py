"""Sign-in and sign-out: a pasted token or the link of `rowlock up` becomes the session cookie."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote_plus, unquote

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rowlock.dashboard.rendering import at, fields, page
from rowlock.http.middleware.auth import SIGN_IN, Auth
from rowlock.http.middleware.session_cookie import SESSION, from_here, keep, opened_by_hand, put
from rowlock.http.problem import Problem
from rowlock.tokens import LENGTH_MAX

router = APIRouter()

_WHY = {
    "ended": "Your session has ended: its token has expired or was revoked.",
    "unknown": "This token is unknown, expired or revoked.",
    "elsewhere": "This sign-in link was opened from another page, so it does not sign you in: paste the token here.",
    "out": "You are signed out.",
}
_NEXT_MAX = 7_000  # quoted: with the token it must fit into the body limit of the sign-in form


@router.get("/sign-in")
async def ask(
    request: Request,
    token: Annotated[str | None, Query(max_length=2_000)] = None,
    next: Annotated[str, Query()] = "/",
    why: Annotated[str, Query()] = "",
) -> Response:
    """Show the form; with a token from a link, start the session and redirect, which removes it from the address."""
    to = own_path(next)
    if token is None:
        return _form(request, to, _WHY.get(why, ""), good=why == "out")
    if not opened_by_hand(request.scope):
        return _back_to_form(request, to, "elsewhere")
    return await _enter(request, token, to) or _back_to_form(request, to, "unknown")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    given = fields(request)
    if not from_here(request.scope):
        raise Problem("cross_site", "this form was sent from another site")
    to = own_path(str(given.get("next", "/")))
    return await _enter(request, str(given.get("token", "")), to) or _form(request, to, _WHY["unknown"], status=401)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Delete the session cookie; the token itself stays valid."""
    if not from_here(request.scope):
        raise Problem("cross_site", "this form was sent from another site")
    answer = _back_to_form(request, "/", "out")
    put(answer, request.scope, SESSION, "", 0)
    return answer


def own_path(given: str) -> str:
    """Return the path if it is safe to redirect to, otherwise "/": no other site's address and not the sign-in page."""
    fine = (
        given.startswith("/")
        and not given.startswith("//")
        and "\\" not in given
        and given.isprintable()
        and given.isascii()
        and len(quote_plus(given)) <= _NEXT_MAX
        and not _leads_astray(unquote(re.split("[?#]", given, maxsplit=1)[0]))
    )
    return given if fine else "/"


def _leads_astray(path: str) -> bool:
    """Return whether a path may leave the mount point (dot segments, backslashes), or is the sign-in page."""
    steps = [step for step in path.split("/") if step]
    return "." in steps or ".." in steps or "\\" in path or steps[:1] == [SIGN_IN[1:]]


async def _enter(request: Request, token: str, to: str) -> Response | None:
    auth: Auth = request.app.state.auth
    token = token.strip()
    try:
        if not token or len(token) > LENGTH_MAX or not token.isascii():
            raise Problem("unauthorized", "this is not a token")
        record = await auth.known(token, request.scope)
    except Problem as problem:
        if problem.status == 401:
            return None
        raise
    answer = RedirectResponse(at(request.scope, to), 303, {"cache-control": "no-store"})
    keep(answer, request.scope, token, record.expires_at)
    return answer


def _form(request: Request, to: str, why: str, *, good: bool = False, status: int = 200) -> Response:
    return page(request, None, "sign-in.html", status=status, next=to, why=why, good=good)


def _back_to_form(request: Request, to: str, why: str) -> Response:
    address = at(request.scope, "/sign-in", why=why, next=to if to != "/" else None)
    return RedirectResponse(address, 303, {"cache-control": "no-store"})

"""Renders errors at page addresses as pages; at all others they stay problem+json."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from rowlock.dashboard.rendering import at, page
from rowlock.http.middleware.auth import CALLER, OPEN, SIGN_IN, path_of
from rowlock.http.middleware.session_cookie import SESSION, put, session_of
from rowlock.http.problem import PROBLEMS, Problem

NAMES = ("jobs", "dead", "imports", "sync", "queues", "schedules", "sign-in", "sign-out", "assets")
_MACHINES = (*OPEN, "/metrics", "/openapi.json")

_NEXT = {
    401: "Sign in with a valid token.",
    403: "Ask your administrator for a token with the required role.",
    404: "Look for it in the list, or check the address.",
    409: "Go back and check the current state.",
    429: "Wait a moment, then try again.",
    503: "Try again in a few seconds; if the problem remains, check the database.",
    504: "Try again with a narrower filter, which takes less time.",
}


def is_page(scope: Scope) -> bool:
    """Return whether the request is for a page: by its path or, at unknown paths, if it accepts HTML."""
    path = path_of(scope)
    first = path[1:].partition("/")[0] if path.startswith("/") else None
    if path == "/" or first in NAMES:
        return True
    if first == "api" or path in _MACHINES:
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def tell(problem: Problem, scope: Scope) -> Response:
    """Return the response to a problem: JSON, a page or, for 401 on a page, a redirect to the sign-in page."""
    if not is_page(scope):
        return problem.response()
    if problem.status == 401:
        return _to_sign_in(scope)
    request = Request(scope)
    kind = PROBLEMS[problem.code]
    plain = problem.response()  # for its headers, such as Retry-After
    headers = {name: value for name, value in plain.headers.items() if name in ("retry-after", "allow")}
    return page(
        request,
        scope.get(CALLER),
        "problem.html",
        status=problem.status,
        headers=headers,
        number=problem.status,
        title=kind.title,
        detail=problem.detail,
        code=problem.code,
        what_next=_NEXT.get(problem.status, "Go back, correct the problem above, and try again."),
    )


def _to_sign_in(scope: Scope) -> Response:
    asked = path_of(scope) if scope["method"] in ("GET", "HEAD") else "/"
    if asked != "/" and scope["query_string"]:
        asked += "?" + scope["query_string"].decode("latin-1")
    had = session_of(scope) is not None
    address = at(scope, SIGN_IN, next=asked if asked != "/" else None, why="ended" if had else None)
    answer = RedirectResponse(address, 303)
    answer.headers["cache-control"] = "no-store"
    if had:
        put(answer, scope, SESSION, "", 0)
    return answer

"""The session's cookie, and whether a request that brings it comes from a page of ours."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import Scope

SESSION = "rowlock_session"
_SECONDS_MAX = 30 * 86_400
_SAFE = ("GET", "HEAD")


def session_of(scope: Scope) -> str | None:
    """The token that the cookie carries; of several the first, which browsers send for the nearest path."""
    given = b";".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    pairs = (part.strip().partition("=") for part in given.split(";"))
    return next((value.strip(' "') for name, _, value in pairs if name == SESSION), None) or None


def from_here(scope: Scope) -> bool:
    """Whether it only reads, or a page of this very origin sends it.

    Browsers say it in Sec-Fetch-Site, except over plain HTTP to other machines: there the Origin must be our Host.
    """
    if scope["method"] in _SAFE:
        return True
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    return _host_of(headers.get(b"origin", b"")) == headers.get(b"host", b"?").decode("latin-1").lower()


def opened_by_hand(scope: Scope) -> bool:
    """Whether no other site led here: a link that signs in is not followed from one."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site in (b"none", b"same-origin")
    referer = headers.get(b"referer")
    return referer is None or _host_of(referer) == headers.get(b"host", b"?").decode("latin-1").lower()


def keep(response: Response, scope: Scope, token: str, expires_at: datetime | None) -> None:
    """Let the browser keep the token: for as long as it is good, and for our addresses alone."""
    left = _SECONDS_MAX
    if expires_at is not None:
        left = max(0, min(left, int((expires_at - datetime.now(UTC)).total_seconds())))
    put(response, scope, SESSION, token, left)


def put(response: Response, scope: Scope, name: str, value: str, seconds: int) -> None:
    """Set a cookie that no script and no other site can use; for 0 seconds: take it back."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=scope.get("root_path") or "/",
        secure=scope.get("scheme") == "https",
        httponly=True,
        samesite="strict",
    )


def _host_of(url: bytes) -> str:
    try:
        return urlsplit(url.decode("latin-1")).netloc.lower()
    except ValueError:
        return ""

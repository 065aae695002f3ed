"""The session's cookie, and whether a request that brings it comes from a page of ours."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
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
    """Whether a person opened this very address, or a program on this machine did: no page led here.

    A page of ours does not count either, since it may have been sent on by an address that another site made up.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    return site == b"none" if site is not None else _program_here(scope, headers)


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


def _program_here(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether this is curl or the like on the machine that serves.

    Browsers send Sec-Fetch-Site to loopback addresses. Old ones do not, nor any through a proxy here that names us
    as the host, over plain HTTP: they say what they are.
    """
    if any(name.startswith(b"sec-fetch-") or name in (b"origin", b"referer") for name in headers):
        return False
    if headers.get(b"user-agent", b"").lower().startswith(b"mozilla/"):
        return False
    client = (scope.get("client") or ("",))[0]
    return _is_loopback(client) and _is_loopback(_name_of(headers.get(b"host", b"")))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _name_of(host: bytes) -> str:
    """The host without its port."""
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""

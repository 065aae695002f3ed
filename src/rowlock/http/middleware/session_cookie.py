"""The session cookie, and the cross-site checks of requests that carry it."""

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
    """Return the session cookie's token, or None; of several, the first, which has the most specific path."""
    given = b";".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    pairs = (part.strip().partition("=") for part in given.split(";"))
    return next((value.strip(' "') for name, _, value in pairs if name == SESSION), None) or None


def from_here(scope: Scope) -> bool:
    """Return whether the request only reads, or comes from a page of the same origin.

    Browsers send Sec-Fetch-Site, except over plain HTTP to other machines; then the Origin must match the Host.
    """
    if scope["method"] in _SAFE:
        return True
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    return _host_of(headers.get(b"origin", b"")) == headers.get(b"host", b"?").decode("latin-1").lower()


def opened_by_hand(scope: Scope) -> bool:
    """Return whether a person opened this address directly, or a program on this machine did; no page led here.

    Our own pages count as pages, too: the address that led through one may have been made up by another site.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    return site == b"none" if site is not None else _program_here(scope, headers)


def keep(response: Response, scope: Scope, token: str, expires_at: datetime | None) -> None:
    """Set the session cookie until the token expires, for 30 days at most."""
    left = _SECONDS_MAX
    if expires_at is not None:
        left = max(0, min(left, int((expires_at - datetime.now(UTC)).total_seconds())))
    put(response, scope, SESSION, token, left)


def put(response: Response, scope: Scope, name: str, value: str, seconds: int) -> None:
    """Set a cookie that neither scripts nor other sites can use; 0 seconds delete it."""
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
    """Return whether the request comes from curl or a similar program on the server's machine.

    Browsers send Sec-Fetch-Site to loopback addresses. Old browsers do not, nor does any browser over plain HTTP
    through a local proxy that rewrites the Host; the User-Agent identifies these.
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
    """Return the host without its port."""
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""

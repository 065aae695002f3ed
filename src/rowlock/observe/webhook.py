"""Webhooks: signed as the Standard Webhooks specification defines, and kept away from private addresses.

    host ─resolve─▶ addresses ─all global?─▶ connect to one of these, under the host's own name

The name is resolved once and the checked address is connected to, so a DNS answer that changes later has no effect.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import socket
import ssl
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from rowlock.errors import NoticeFailed, SettingsError

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 10.0  # in all: resolving the name, connecting, the request, the head of the response
URL_LENGTH_MAX = 2_000
SECRET_BYTES = (24, 64)  # what the specification recommends
_PREFIX = "whsec_"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_HOST = re.compile(rb"[\w.-]*|[0-9a-f:.]+", re.IGNORECASE)
_PORTS = range(1, 65_536)
_NEEDS_EXTRA = "webhooks need httpx: pip install 'rowlock[notify]'"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def post(url: str, secret: bytes, message_id: str, body: bytes, *, allow_private: bool) -> None:
    """Deliver a JSON body and return when it is accepted (2xx); the body of the response is not read.

    Raises NoticeFailed without the URL, which may contain a secret. Pass the same message id in every attempt.
    """
    target = _parsed(url)
    if target is None:
        raise NoticeFailed("is not a URL")
    headers = {"Content-Type": "application/json", "User-Agent": "rowlock", **signed(secret, message_id, body)}
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            addresses = await _resolved(target)
            if not allow_private:
                refuse_private(addresses)
            status = await _deliver(target, addresses, headers, body)
    except TimeoutError:
        raise NoticeFailed(f"no answer within {TIMEOUT_SECONDS:g} s") from None
    if not 200 <= status < 300:
        raise NoticeFailed(f"it answered {status}" + (" (redirects are not followed)" if 300 <= status < 400 else ""))


def signed(secret: bytes, message_id: str, body: bytes, now: float | None = None) -> dict[str, str]:
    """Return the three headers by which the receiver verifies the sender and recognises an old message."""
    timestamp = str(int(time.time() if now is None else now))
    content = b".".join((message_id.encode(), timestamp.encode(), body))
    digest = hmac.new(secret, content, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def decode_secret(secret: str) -> bytes:
    """Return the bytes of a signing secret; raises SettingsError, without the secret, if it is malformed."""
    low, high = SECRET_BYTES
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        found = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        found = b""
    if not low <= len(found) <= high:
        raise SettingsError(
            f"ROWLOCK_WEBHOOK_SECRET: must be {_PREFIX} and the base64 of {low} to {high} random bytes, "
            f'as from: echo "{_PREFIX}$(openssl rand -base64 32)"'
        )
    return found


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise ValueError for a webhook's URL that is not allowed; the message has the reason, but not the URL."""
    if len(url) > URL_LENGTH_MAX:
        raise ValueError(f"is longer than {URL_LENGTH_MAX} characters")
    target = _parsed(url)
    if target is None:
        raise ValueError("is not a URL")
    if target.scheme not in ("http", "https") or not target.raw_host:
        raise ValueError("is not an http:// or https:// URL with a host")
    literal = _literal(target.raw_host.decode("ascii"))
    if literal is not None and not allow_private and not is_public(literal):
        raise ValueError("is a private address")


def place(url: str) -> str:
    """Return a webhook's scheme and host for display, without its path, query and user, which may be secret."""
    target = _parsed(url)
    return "…" if target is None else f"{target.scheme}://{target.netloc.decode('ascii')}/…"


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet; an IPv4 address inside an IPv6 address is checked too."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address.is_site_local:
            return False
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(address.packed[-4:]))
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if any(found is not None for found in inner):
            return all(is_public(found) for found in inner if found is not None)
        if address.is_reserved:
            return False
    return address.is_global and not address.is_multicast


def refuse_private(addresses: list[Address]) -> None:
    """Raise NoticeFailed unless all addresses are public: one private address is enough for an attack."""
    for address in addresses:
        if not is_public(address):
            raise NoticeFailed(
                "its host has a private address, which is not allowed (see ROWLOCK_WEBHOOK_ALLOW_PRIVATE)"
            )


def _parsed(url: str) -> httpx.URL | None:
    httpx = _httpx()
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return None
    return found if _HOST.fullmatch(found.raw_host) and (found.port or 1) in _PORTS else None


async def _resolved(target: httpx.URL) -> list[Address]:
    # Resolved by the system, which knows every spelling of an address: 127.1, 0x7f000001, 2130706433.
    loop = asyncio.get_running_loop()
    port = target.port or (443 if target.scheme == "https" else 80)
    try:
        found = await loop.getaddrinfo(target.raw_host.decode("ascii"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoticeFailed("its host's name cannot be resolved") from None
    addresses = list(dict.fromkeys(_address(str(entry[4][0]), entry[4]) for entry in found))
    if not addresses:
        raise NoticeFailed("its host's name has no address")
    return addresses


def _address(text: str, entry: tuple[Any, ...]) -> Address:
    """Return an address with its scope, which some systems return separately."""
    scoped = len(entry) == 4 and entry[3] and "%" not in text
    return ipaddress.ip_address(f"{text}%{entry[3]}" if scoped else text)


async def _deliver(target: httpx.URL, addresses: list[Address], headers: dict[str, str], body: bytes) -> int:
    """Send the request to the first address that accepts a connection; return the response's status."""
    httpx = _httpx()
    # No proxy from the environment: it would resolve the name again, by itself.
    async with httpx.AsyncClient(
        verify=_certificates(), trust_env=False, follow_redirects=False, timeout=TIMEOUT_SECONDS
    ) as client:
        for number, address in enumerate(addresses, 1):
            request = client.build_request(
                "POST",
                target.copy_with(host=str(address)),
                headers={"Host": target.netloc.decode("ascii"), **headers},
                content=body,
                extensions={"sni_hostname": target.raw_host.decode("ascii")},
            )
            try:
                answer = await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if number < len(addresses):
                    continue
                raise NoticeFailed(f"it cannot be reached: {error or type(error).__name__}") from None
            except httpx.HTTPError as error:
                raise NoticeFailed(f"no response: {type(error).__name__}") from None
            status: int = answer.status_code
            await answer.aclose()
            return status
    raise AssertionError("there is at least one address")


def _literal(host: str) -> Address | None:
    """Return a host as an address, in any spelling that the system accepts; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, of SSL_CERT_FILE or SSL_CERT_DIR if set; read once, as reading is slow."""
    context: ssl.SSLContext = _httpx().create_ssl_context()
    return context


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise SettingsError(f"ROWLOCK_WEBHOOK_URLS: {_NEEDS_EXTRA}") from None
    return httpx

"""Send one request to a service and read its answer, within limits of time and size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from rowlock.errors import BadPayload, SettingsError
from rowlock.observe import trace
from rowlock.sync.response import Answer

if TYPE_CHECKING:
    import httpx

ANSWER_BYTES_MAX = 10 * 1_048_576
_CONNECT_SECONDS_MAX = 10.0
_TEXT_LENGTH_MAX = 2_000


class NotSent(Exception):
    """The service was not reached and has not seen the request."""


class Cut(Exception):
    """The service was reached, but its answer is missing or incomplete."""

    def __init__(self, reason: str, *, under_way: bool) -> None:
        super().__init__(reason)
        self.under_way = under_way  # the request may still arrive, or be in progress


class Wire:
    """Keep-alive connections to one service, for one event loop."""

    def __init__(self, base_url: str, headers: Mapping[str, str], timeout_seconds: float, connections: int) -> None:
        self._httpx = httpx = load_client()
        self._base_url = base_url
        self._timeout_seconds = timeout_seconds
        connect = min(_CONNECT_SECONDS_MAX, timeout_seconds / 2)
        self._client = httpx.AsyncClient(
            headers={"user-agent": f"rowlock/{metadata.version('rowlock')}", "accept-encoding": "identity"}
            | dict(headers),
            timeout=httpx.Timeout(timeout_seconds, connect=connect, pool=connect),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            verify=certificates(),
            follow_redirects=False,
            trust_env=not _loopback(httpx.URL(base_url).host),  # a proxy would resolve localhost to itself
        )

    async def close(self) -> None:
        await self._client.aclose()

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str], json: Any, params: Mapping[str, Any] | None
    ) -> httpx.Request:
        """Build a request. Raises BadPayload for a path outside the base URL, TypeError for a body that is not JSON."""
        sent = {"accept": "application/json", **headers}
        content = None
        if json is not None:
            content = orjson.dumps(json)
            sent["content-type"] = "application/json"
        if (traceparent := trace.current()) is not None:
            sent["traceparent"] = traceparent
        given = None if params is None else {name: value for name, value in params.items() if value is not None}
        url = f"{self._base_url}{checked_path(path)}"
        made: httpx.Request = self._client.build_request(method, url, headers=sent, content=content, params=given)
        return made

    async def send(self, request: httpx.Request) -> Answer:
        """Send the request and return the answer, whatever its status. Raises NotSent or Cut."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(request)
        except TimeoutError:
            raise Cut(f"no answer within {self._timeout_seconds:g} s", under_way=True) from None

    async def _exchange(self, request: httpx.Request) -> Answer:
        httpx = self._httpx
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            raise NotSent(_reason(error)) from None
        except httpx.TimeoutException as error:
            raise Cut(_reason(error), under_way=True) from None
        except httpx.TransportError as error:
            raise Cut(_reason(error), under_way=False) from None
        try:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise Cut(f"its answer is larger than {ANSWER_BYTES_MAX:,} bytes", under_way=False)
        except httpx.TimeoutException as error:
            raise Cut(_reason(error), under_way=True) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Cut(_reason(error), under_way=False) from None
        finally:
            await response.aclose()
        return _answer(response.status_code, dict(response.headers), bytes(body))


def load_client() -> ModuleType:
    """Import httpx, an optional dependency. Raises SettingsError if it is not installed."""
    try:
        import httpx
    except ImportError:
        raise SettingsError("integrations need the extra `sync`: pip install 'rowlock[sync]'") from None
    return httpx


@cache
def certificates() -> ssl.SSLContext:
    """Return the TLS context, from SSL_CERT_FILE or SSL_CERT_DIR if set. Cached, because loading is slow."""
    context: ssl.SSLContext = load_client().create_ssl_context()
    return context


def _answer(status: int, headers: dict[str, str], body: bytes) -> Answer:
    """Build the answer. Raises Cut for a 2xx answer whose body is not JSON."""
    if not body.strip():
        return Answer(status, None, headers)
    try:
        return Answer(status, orjson.loads(body), headers)
    except orjson.JSONDecodeError:
        if 200 <= status < 300:
            raise Cut(f"it answered {status} with what is not JSON", under_way=False) from None
        return Answer(status, None, headers, body[: 4 * _TEXT_LENGTH_MAX].decode("utf-8", "replace")[:_TEXT_LENGTH_MAX])


def checked_path(path: str) -> str:
    """Return the path. Raises BadPayload unless it stays below the base URL: payload values must not lead elsewhere."""
    fine = path.startswith("/") and path.isprintable() and not any(c in path for c in '?#\\ "<>')
    if not fine or any(unquote(part) in (".", "..") for part in path.split("/")) or "//" in path:
        raise BadPayload(
            f"{path[:100]!r} is not a path below the service's address; "
            "give what comes from a payload as urllib.parse.quote(value, safe='')"
        )
    return path


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _loopback(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")

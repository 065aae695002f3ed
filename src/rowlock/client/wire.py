"""HTTP transport of the client: retries requests, and raises the errors of local calls."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, TypeVar

import httpx
import orjson
from pydantic import ValidationError

from rowlock import errors
from rowlock.errors import (
    DuplicateImport,
    DuplicateJob,
    FileRefused,
    Outcome,
    RequestFailed,
    RowlockError,
    SettingsError,
)
from rowlock.ids import uuid7
from rowlock.management.schemas.base import Schema

S = TypeVar("S", bound=Schema)

TRIES = 4
_AGAIN_SECONDS = 0.2  # before the second try; doubles before each further one; jitter ± 50 %
_AGAIN_SECONDS_MAX = 10.0  # even if the server asks for a longer wait
_BUSY = (429, 502, 503)
_IN_PROGRESS = "idempotency_in_progress"  # our own first try, whose answer did not reach us
_LASTING = ("queue_full", "not_ready")  # not retried: these do not pass in seconds, so the caller should know
_KEEP_SECONDS = 120.0  # a server may need this long to make a large file durable
_PROBLEM_FIELDS = ("type", "title", "status", "code", "detail")
_TOKEN = re.compile(r"[\x21-\x7e]{1,200}")

_ERRORS: Mapping[str, type[RowlockError]] = {
    found.code: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, RowlockError) and not issubclass(found, (Outcome, RequestFailed))
}


class Wire:
    """Connections to one server, with one token."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_seconds: float,
        transport: httpx.AsyncBaseTransport | None,
        insecure: bool,
    ) -> None:
        found = _checked(url, token, insecure)
        trust_env = not _loopback(found.host)  # a proxy would look for a loopback address on its own machine
        self.url = str(found).rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._http = httpx.AsyncClient(
            base_url=found,
            headers={"authorization": f"Bearer {token}", "user-agent": "rowlock"},
            timeout=timeout_seconds,
            transport=transport,
            verify=_certificates(trust_env),
            trust_env=trust_env,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, kind: type[S], path: str, *, enveloped: bool = False, **asked: Any) -> S:
        """Return the object at this path; parameters that are None are left out."""
        return _read(kind, await self.send("GET", path, params=_query(asked)), enveloped)

    async def post(
        self, kind: type[S], path: str, body: Mapping[str, Any] | None = None, *, enveloped: bool = False
    ) -> S:
        """Send a command with an idempotency key, so that it runs once even if it is sent several times."""
        headers = {"idempotency-key": uuid7()}
        if body is None:
            return _read(kind, await self.send("POST", path, headers=headers), enveloped)
        headers["content-type"] = "application/json"
        return _read(kind, await self.send("POST", path, content=orjson.dumps(body), headers=headers), enveloped)

    async def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request, up to TRIES times; return the response. Raises a local call's error, or RequestFailed."""
        number = 0
        while True:
            number += 1
            wait: str | None = None
            try:
                answer = await self._http.request(method, path, **request)
            except httpx.RequestError as error:
                if number == TRIES:
                    raise self.unreachable(error) from None
            else:
                if answer.is_success:
                    return answer
                failed = failure(answer)
                if number == TRIES or not _passing(answer.status_code, failed.code):
                    raise failed
                wait = answer.headers.get("retry-after")
            await asyncio.sleep(pause_seconds(number, wait))

    async def upload(
        self,
        kind: type[S],
        path: str,
        asked: Mapping[str, Any],
        content: Callable[[], AsyncIterator[bytes]],
        *,
        size: int,
        again: bool,
    ) -> S:
        """Upload a file. Retry a broken connection only if `again`, since the server may have received the file.

        After such a retry DuplicateImport is no error: the duplicate is our own first try, and is returned.
        """
        headers = {"content-type": "application/octet-stream", "content-length": str(size)}
        timeout = httpx.Timeout(self.timeout_seconds, read=max(self.timeout_seconds, _KEEP_SECONDS))
        number, broken = 0, False
        while True:
            number += 1
            wait: str | None = None
            try:
                answer = await self._http.post(
                    path, params=_query(asked), content=content(), headers=headers, timeout=timeout
                )
            except httpx.RequestError as error:
                if number == TRIES or not again:
                    raise self.unreachable(error) from None
                broken = True
            else:
                if answer.is_success:
                    return _read(kind, answer)
                failed = failure(answer)
                if broken and isinstance(failed, DuplicateImport) and (existing := _problem(answer).get("existing")):
                    return kind.model_validate(existing)
                if number == TRIES or not _passing(answer.status_code, failed.code):
                    raise failed
                wait = answer.headers.get("retry-after")
            await asyncio.sleep(pause_seconds(number, wait))

    def stream(self, path: str, **request: Any) -> AbstractAsyncContextManager[httpx.Response]:
        """Open a streamed response."""
        return self._http.stream("GET", path, **request)

    def unreachable(self, error: httpx.RequestError) -> RequestFailed:
        """Return the error for a server that gave no answer, with what to check."""
        late = isinstance(error, httpx.ReadTimeout)
        reason = f"no answer within {self.timeout_seconds:g} s" if late else str(error) or type(error).__name__
        return RequestFailed(
            f"{self.url} cannot be reached ({reason}): check the address, and that `rowlock serve` runs there",
            code="server_unavailable",
        )


def pause_seconds(number: int, asked: str | None = None) -> float:
    """Return the seconds to wait after this many failures; `asked` by the server takes precedence, up to a limit."""
    if asked is not None and asked.isdecimal():
        return min(float(asked), _AGAIN_SECONDS_MAX)
    usual = min(_AGAIN_SECONDS * 2.0 ** (number - 1), _AGAIN_SECONDS_MAX)
    return usual * random.uniform(0.5, 1.5)  # noqa: S311  # so that many clients do not come back at once


def failure(answer: httpx.Response) -> RowlockError:
    """Return the error for a response: of the class that a local call raises, if any, else RequestFailed."""
    problem = _problem(answer)
    code, detail, status = problem.get("code"), str(problem.get("detail", "")), answer.status_code
    if not isinstance(code, str):
        return _not_rowlock(answer)
    kind = _ERRORS.get(code)
    if kind is DuplicateJob:
        existing = str(problem.get("existingJobId", ""))
        return DuplicateJob(detail, existing_job_id=existing, removed=bool(problem.get("existingRemoved")))
    if kind is DuplicateImport:
        return DuplicateImport(detail, existing_import_id=str(problem.get("existingImportId", "")))
    if code.startswith("file_"):
        return FileRefused(
            detail, code=code, more={name: problem[name] for name in problem if name not in _PROBLEM_FIELDS}
        )
    if kind is not None:
        return kind(detail)
    return RequestFailed(detail or f"the server answers {status}", code=code, status=status)


def _not_rowlock(answer: httpx.Response) -> RequestFailed:
    elsewhere = f" and points to {answer.headers.get('location')}" if answer.is_redirect else ""
    return RequestFailed(
        f"{answer.url.host} answers {answer.status_code}{elsewhere}, not as a Rowlock server does: check the address",
        code="not_rowlock",
        status=answer.status_code,
    )


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        problem = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _passing(status: int, code: str) -> bool:
    """Return whether a retry of the request is likely to succeed soon."""
    return code == _IN_PROGRESS or (status in _BUSY and code not in _LASTING)


def _read(kind: type[S], answer: httpx.Response, enveloped: bool = False) -> S:
    """Return the object of a response, without the envelope {success, data} of the routes of administrators."""
    try:
        found = orjson.loads(answer.content)
        return kind.model_validate(found["data"] if enveloped else found)
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError):
        raise _not_rowlock(answer) from None


def _query(asked: Mapping[str, Any]) -> dict[str, str]:
    given = {name: value for name, value in asked.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _checked(url: str, token: str, insecure: bool) -> httpx.URL:
    """Return the URL if a token may be sent there; raises SettingsError, without any part that may be secret."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL:
        found = httpx.URL()
    if found.scheme not in ("http", "https") or not found.host:
        raise SettingsError("the server's address must be a URL such as https://jobs.example.org")
    place = f"{found.scheme}://{found.netloc.decode()}"
    if found.userinfo or found.query or found.fragment:
        raise SettingsError(f"{place}: the server's address may have no user, password, query or fragment")
    if _TOKEN.fullmatch(token) is None:
        raise SettingsError("the token is empty, or has characters that no token has")
    if found.scheme == "http" and not insecure and not _loopback(found.host):
        raise SettingsError(
            f"{place}: a token must not travel in the clear; use https, or, where the network itself is safe, "
            "insecure=True or ROWLOCK_INSECURE=1"
        )
    return found


@cache
def _certificates(trust_env: bool) -> ssl.SSLContext:
    """The trusted certificates; reading them takes 35 ms, so once per process."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

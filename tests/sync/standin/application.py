"""The ASGI application: counts, checks, fails as it was told, does the work, and keeps a journal of all calls.

/_control is for the test: limits, trouble, access, search_lag_seconds, objects, reset; state, journal, judgement.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl

from sync.standin import endpoints
from sync.standin.asked import Asked
from sync.standin.crm import Crm
from sync.standin.endpoints import SCOPES, Endpoint
from sync.standin.refusal import Refusal, limited, malformed
from sync.standin.trouble import AFTER, Trouble
from sync.standin.windows import Windows

TOKEN = "stand-in-token"
BODY_MAX = 5_000_000
HUGE = 11_000_000
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Application:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.crm = Crm()
        self.windows = Windows()
        self.trouble = Trouble()
        self.tokens = {TOKEN}
        self.scopes = set(SCOPES)
        self.calls: list[dict[str, Any]] = []
        self.complaints: list[str] = []

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        body = await _body(receive)
        if body is None:  # the client disconnected before it had sent the whole body
            self.calls.append({"method": scope["method"], "path": scope["path"], "arrived": scope.get("arrived", 0.0)})
            self.windows.arrive(scope.get("arrived") or time.monotonic(), None)
            self.calls[-1] |= {"status": None, "trouble": "broken_off", "worked": time.monotonic(), "ended": 0.0}
            return
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        if path.startswith("/_control/"):
            await self._control(scope["method"], path.removeprefix("/_control/"), body, send)
        else:
            await Exchange(self, scope, path, body, send).run()

    # -- control ----------------------------------------------------------------------------------

    async def _control(self, method: str, what: str, body: bytes, send: Send) -> None:
        try:
            answer = self._get(what) if method == "GET" else self._put(what, json.loads(body or b"null"))
        except Exception as error:
            await _answer(send, 400, {"error": f"{type(error).__name__}: {error}"})
        else:
            await _answer(send, 200, answer)

    def _get(self, what: str) -> Any:
        match what:
            case "state":
                return self.crm.state()
            case "changes":
                return self.crm.changes
            case "journal":
                return self.calls
            case "judgement":
                return self.judgement()
            case "clock":
                return time.monotonic()
        raise KeyError(what)

    def _put(self, what: str, told: Any) -> Any:
        match what:
            case "reset":
                self.reset()
            case "limits":
                self.windows = Windows(told)
            case "trouble":
                self.trouble = Trouble.told(told, self.trouble.happened)
            case "access":
                self.tokens = set(told.get("tokens", self.tokens))
                self.scopes = set(told.get("scopes", self.scopes))
            case "search_lag_seconds":
                self.crm.search_lag_seconds = float(told)
            case "properties":
                for kind, each in told:
                    self.crm.schema(kind).add(each)
            case "objects":
                return [self.crm.create(kind, self.crm.schema(kind).check(each)).id for kind, each in told]
            case _:
                raise KeyError(what)
        return None

    def judgement(self) -> dict[str, Any]:
        """All that can be held against the callers."""
        return {
            "calls": len(self.calls),
            "under_way": sum("ended" not in call for call in self.calls),
            "windows": [window.judged() for window in self.windows.all],
            "complaints": self.complaints,
            "duplicates": self.crm.duplicates(),
            "overlaps": overlaps(self.calls),
            "trouble": dict(self.trouble.happened),
            "statuses": dict(Counter(str(call.get("status")) for call in self.calls)),
        }


class Exchange:
    """One call."""

    def __init__(self, application: Application, scope: dict[str, Any], path: str, body: bytes, send: Send) -> None:
        self.application = application
        self.scope = scope
        self.method = scope["method"]
        self.path = path
        self.raw = body
        self.send = send
        self.arrived: float = scope.get("arrived") or time.monotonic()
        self.correlation_id = str(uuid.uuid4())
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.call: dict[str, Any] = {"method": self.method, "path": path, "arrived": self.arrived, "items": 0}
        self.extra: dict[str, str] = {}

    async def run(self) -> None:
        application = self.application
        application.calls.append(self.call)
        status: int | None = None
        answer: Any = None
        trouble: str | None = None
        try:
            endpoint, names = self._find()
            broken = application.windows.arrive(self.arrived, endpoint.group if endpoint else None)
            self.extra = application.windows.headers(self.arrived, endpoint.group if endpoint else None)
            if broken is not None:
                self.call["overrun"] = broken.name
                status, answer = 429, limited(broken.name) | {"correlationId": self.correlation_id}
            else:
                trouble = application.trouble.choose(self.method, self.path, self.arrived)
                if seconds := application.trouble.latency():
                    await asyncio.sleep(seconds)
                if trouble is None or trouble in AFTER:
                    status, answer = self._work(endpoint, names)
        except Refusal as refusal:
            status, answer = refusal.status, refusal.body(self.correlation_id)
            if refusal.complaint:
                application.complaints.append(f"{self.method} {self.path}: {refusal.message}")
        self.call |= {"trouble": trouble, "worked": time.monotonic()}
        status = await self._reply(trouble, status, answer)
        self.call |= {"status": status, "ended": time.monotonic()}

    def _find(self) -> tuple[Endpoint | None, dict[str, str]]:
        try:
            return endpoints.find(self.method, self.path.strip("/").split("/"))
        except Refusal as refusal:
            self.application.complaints.append(refusal.message)
            return None, {}

    def _work(self, endpoint: Endpoint | None, names: dict[str, str]) -> tuple[int, Any]:
        application = self.application
        if self.headers.get("authorization") not in {f"Bearer {token}" for token in application.tokens}:
            raise Refusal(401, "INVALID_AUTHENTICATION", "Authentication credentials not found.")
        if endpoint is None:
            raise Refusal(404, "NOT_FOUND", "no such endpoint")
        for needed in endpoints.scopes_of(endpoint, names):
            if needed not in application.scopes:
                raise missing_scope(needed)
        query = parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        asked = Asked(names, dict(query), self._parsed(), set())
        endpoint.check(asked)
        if isinstance(asked.body, dict) and isinstance(asked.body.get("inputs"), list):
            self.call["items"] = len(asked.body["inputs"])
        answer = endpoint.handler(application.crm, asked)
        self.call["touched"] = sorted(asked.touched)
        return answer

    def _parsed(self) -> Any:
        if not self.raw:
            return None
        if self.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise malformed(f"no such content type: {self.headers.get('content-type')}")
        try:
            return json.loads(self.raw)
        except ValueError:
            raise malformed("Invalid input JSON on line 1") from None

    # -- what is answered --------------------------------------------------------------------------

    async def _reply(self, trouble: str | None, status: int | None, answer: Any) -> int | None:
        """Send it, or what happens instead; the status that went out."""
        match trouble:
            case "hang" | "hang_before":
                await asyncio.sleep(self.application.trouble.hang_seconds)
                self._cut()
                return None
            case "cut" | "cut_before":
                self._cut()
                return None
        if status is None:
            return await self._instead(trouble)
        body = json.dumps(answer).encode()
        headers = {"content-type": "application/json;charset=utf-8", **self.extra}
        match trouble:
            case "500_after":
                return await self._fail(500)
            case "wrong_json":
                body = body[: len(body) // 2] + b"<"
            case "huge":
                body = b'{"padding":"' + b"x" * HUGE + b'"}'
            case "truncated" | "cut_inside":
                await self.send(_start(status, headers | {"content-length": str(len(body) + 10)}))
                await self.send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
                if trouble == "cut_inside":
                    self._cut()
                else:
                    self.scope["transport"].close()
                return status
        await self.send(_start(status, headers | {"content-length": str(len(body))}))
        await self.send({"type": "http.response.body", "body": body})
        return status

    async def _instead(self, trouble: str | None) -> int:
        """An answer without the work."""
        wait = self.application.trouble.retry_after_seconds
        match trouble:
            case "429" | "429_after" | "429_date":
                if trouble == "429_after":
                    self.extra["retry-after"] = f"{wait:g}"
                elif trouble == "429_date":
                    at = datetime.now(UTC) + timedelta(seconds=wait)
                    self.extra["retry-after"] = format_datetime(at, usegmt=True)
                return await self._answer(429, limited("TEN_SECONDLY_ROLLING"))
            case "named_limit":
                refusal = Refusal(400, "RATELIMIT_EXCEEDED", "The request could not be made now.")
                return await self._answer(400, refusal.body(self.correlation_id))
            case "401":
                refusal = Refusal(401, "EXPIRED_AUTHENTICATION", "The token used to make this call expired.")
                return await self._answer(401, refusal.body(self.correlation_id))
            case "403":
                return await self._answer(403, missing_scope("crm.objects.contacts.write").body(self.correlation_id))
            case "502_html":
                page = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
                await self.send(_start(502, {"content-type": "text/html", "content-length": str(len(page))}))
                await self.send({"type": "http.response.body", "body": page})
                return 502
            case "redirect":
                await self.send(_start(302, {"location": "/crm/v3/objects/contacts/1", "content-length": "0"}))
                await self.send({"type": "http.response.body", "body": b""})
                return 302
        return await self._fail(500)

    async def _fail(self, status: int) -> int:
        return await self._answer(status, {"status": "error", "message": "internal error"})

    async def _answer(self, status: int, answer: dict[str, Any]) -> int:
        await _answer(self.send, status, {"correlationId": self.correlation_id, **answer}, self.extra)
        return status

    def _cut(self) -> None:
        self.scope["transport"].abort()


def missing_scope(scope: str) -> Refusal:
    error = {
        "message": "One or more of the following scopes are required.",
        "context": {"requiredGranularScopes": [scope]},
    }
    return Refusal(
        403,
        "MISSING_SCOPES",
        "This app hasn't been granted all required scopes to make this call.",
        errors=[error],
        links={"scopes": "https://developers.hubspot.com/scopes"},
    )


def overlaps(calls: list[dict[str, Any]]) -> list[list[str]]:
    """Calls that wrote the same object and were under way at the same time."""
    found = []
    last: dict[str, dict[str, Any]] = {}
    for call in sorted((call for call in calls if call.get("touched")), key=lambda call: float(call["arrived"])):
        for thing in call["touched"]:
            before = last.get(thing)
            if before is not None and call["arrived"] < before["worked"]:
                found.append([thing, f"{before['method']} {before['path']}", f"{call['method']} {call['path']}"])
            if before is None or call["worked"] > before["worked"]:
                last[thing] = call
    return found


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None when the rest of it will not come."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if not message.get("more_body") or size > BODY_MAX:
            return b"".join(parts)


def _start(status: int, headers: dict[str, str]) -> dict[str, Any]:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _answer(send: Send, status: int, answer: Any, extra: dict[str, str] | None = None) -> None:
    body = json.dumps(answer).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **(extra or {})}
    await send(_start(status, headers))
    await send({"type": "http.response.body", "body": body})

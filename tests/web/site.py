"""One HTTP API under test: served, with tokens of every role, and a client."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from rowlock import Rowlock
from rowlock.control import tokens
from rowlock.http.server import address, bind, serve
from rowlock.storage.access import Role, TokenRecord
from rowlock.tokens import new_token

SECONDS = 60.0


class Site:
    """A server of its own, on a port of its own."""

    def __init__(self, app: Rowlock) -> None:
        self.app = app
        self.tokens: dict[str, str] = {}
        self.records: dict[str, TokenRecord] = {}
        self._stop = asyncio.Event()

    async def start(self) -> None:
        for role in Role:
            await self.add_token(role.value, role)
        bound = bind("127.0.0.1", 0)
        self.url = address(bound)
        self.port = bound.getsockname()[1]
        self._serving = asyncio.create_task(serve(self.app, bound, self._stop))
        # Reading the certificates takes 35 ms, and nothing here is encrypted.
        self.http = httpx.AsyncClient(base_url=self.url, timeout=SECONDS, verify=False)
        while (await self._probe()) is None:
            await asyncio.sleep(0.01)

    async def _probe(self) -> httpx.Response | None:
        try:
            return await self.http.get("/healthz")
        except httpx.TransportError:
            return None

    async def add_token(self, name: str, role: Role, company_id: str | None = None, **more: Any) -> str:
        text, token = new_token(name, role, company_id, **more)
        self.records[name] = await tokens.add(self.app.store, token)
        self.tokens[name] = text
        return text

    async def stop(self) -> None:
        self._stop.set()
        await self.http.aclose()
        await self._serving

    async def ask(self, method: str, path: str, token: str | None = "admin", **request: Any) -> httpx.Response:
        """Ask with the token of this name; None: with none."""
        headers = dict(request.pop("headers", {}))
        if token is not None:
            headers["authorization"] = f"Bearer {self.tokens[token]}"
        return await self.http.request(method, path, headers=headers, **request)

    async def get(self, path: str, token: str | None = "admin", **request: Any) -> httpx.Response:
        return await self.ask("GET", path, token, **request)

    async def post(self, path: str, json: Any = None, token: str | None = "admin", **request: Any) -> httpx.Response:
        if json is not None:
            request["json"] = json
        return await self.ask("POST", path, token, **request)

    async def enqueue(self, type: str = "ping", **given: Any) -> dict[str, Any]:
        """Enqueue a job that is taken."""
        answer = await self.post("/api/v1/queue/enqueue", {"type": type, **given})
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    async def dead(self, count: int = 1, **given: Any) -> list[str]:
        """Return the ids of this many dead letters."""
        ids = [(await self.enqueue("doomed", **given))["id"] for _ in range(count)]
        await self.app.work(drain=True)
        return ids


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that this answer is."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = dict(answer.json())
    assert told["code"] == code, told
    assert told["status"] == status
    assert told["type"] == f"urn:rowlock:problem:{code}"
    assert told["title"]
    assert told["detail"]
    return told

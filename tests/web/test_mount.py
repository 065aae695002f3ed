"""The API mounted in another application, under a prefix: all of it works, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from engine.conftest import MakeApp
from rowlock import Rowlock
from rowlock.control import tokens
from rowlock.http import Api, asgi
from rowlock.http.server import address, bind
from rowlock.storage.access import Role
from rowlock.tokens import new_token
from web.conftest import declare
from web.site import SECONDS, problem

PREFIX = "/tools/rowlock"


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"ours: {request.url.path}")


async def broken(request: Request) -> PlainTextResponse:
    raise PermissionError("ours")


async def refused(request: Request, error: Exception) -> PlainTextResponse:
    return PlainTextResponse("our own error", 418)


def starlette(api: Api) -> ASGIApp:
    routes = [Route("/", own), Route("/healthz", own), Route("/broken", broken), Mount(PREFIX, api)]
    return Starlette(routes=routes, exception_handlers={PermissionError: refused})


def fastapi(api: Api) -> ASGIApp:
    site = FastAPI()
    for path in ("/", "/healthz"):
        site.add_route(path, own)
    site.add_route("/broken", broken)
    site.add_exception_handler(PermissionError, refused)
    site.mount(PREFIX, api)
    return site


def nested(api: Api) -> ASGIApp:
    """Mounted in what is mounted itself."""
    first, second = PREFIX[1:].split("/")
    inner = Starlette(routes=[Mount(f"/{second}", api)])
    routes = [Route("/", own), Route("/healthz", own), Route("/broken", broken), Mount(f"/{first}", inner)]
    return Starlette(routes=routes, exception_handlers={PermissionError: refused})


class Outer:
    """The user's application, served, and a client with a token of the API inside."""

    def __init__(self, app: Rowlock, api: Api, url: str) -> None:
        self.app = app
        self.api = api
        self.http = httpx.AsyncClient(base_url=url, timeout=SECONDS, verify=False)
        self.token = ""

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Ask the API inside, with the token."""
        headers = {"authorization": f"Bearer {self.token}"} | request.pop("headers", {})
        return await self.http.request(method, PREFIX + path, headers=headers, **request)


@pytest.fixture(params=[starlette, fastapi, nested], ids=lambda make: make.__name__)
async def outer(request: pytest.FixtureRequest, make_app: MakeApp) -> AsyncIterator[Outer]:
    app = await make_app(http_event_ms=50)
    declare(app)
    api = asgi(app)
    bound = bind("127.0.0.1", 0)
    config = uvicorn.Config(request.param(api), log_config=None, log_level="critical", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(sockets=[bound]))  # without its signal handlers
    outer = Outer(app, api, address(bound))
    outer.token, token = new_token("outer", Role.ADMIN)
    await tokens.add(app.store, token)
    yield outer
    await outer.http.aclose()
    await api.close()
    server.should_exit = True
    async with asyncio.timeout(SECONDS):
        await serving


async def test_its_routes_are_there(outer: Outer) -> None:
    assert (await outer.http.get(f"{PREFIX}/healthz")).json() == {"status": "ok"}
    assert (await outer.http.get(f"{PREFIX}/readyz")).json() == {"status": "ready"}
    answer = await outer.ask("POST", "/api/v1/queue/enqueue", json={"type": "ping"})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (await outer.ask("GET", f"/api/v1/queue/{job['id']}")).json()["type"] == "ping"
    listed = await outer.ask("GET", "/api/v1/queue")
    assert [found["id"] for found in listed.json()["jobs"]] == [job["id"]]
    again = await outer.ask("GET", "/api/v1/queue", headers={"if-none-match": listed.headers["etag"]})
    assert again.status_code == 304
    assert (await outer.ask("GET", "/api/admin/queue/health")).json()["success"] is True


async def test_a_token_is_needed_there(outer: Outer) -> None:
    for path in ("/api/v1/queue", "/openapi.json", "/metrics", "/nowhere", "/api/v1/events"):
        problem(await outer.http.get(PREFIX + path, follow_redirects=True), 401, "unauthorized")
    for path in ("", "/"):
        answer = await outer.http.get(PREFIX + path, follow_redirects=True)
        assert answer.url.path == f"{PREFIX}/sign-in"
    for path in ("/healthz/", "//healthz", "/x/../healthz", f"{PREFIX}/healthz", "/api/v1/queue/healthz"):
        async with outer.http.stream("GET", f"{PREFIX}{path}") as answer:
            assert answer.status_code in (401, 404) or path == "/x/../healthz"


async def test_its_errors_are_its_own(outer: Outer) -> None:
    problem(await outer.ask("GET", "/nowhere"), 404, "not_found")
    problem(await outer.ask("DELETE", "/api/v1/queue"), 405, "method_not_allowed")
    problem(await outer.ask("GET", "/api/v1/queue?limit=0"), 422, "validation_failed")
    problem(await outer.ask("POST", "/api/v1/queue/enqueue", content=b"x"), 415, "unsupported_media_type")
    outer.app.store.refuse("counts", error=RuntimeError("unexpected"))
    answer = await outer.ask("GET", "/api/v1/queue/stats")
    problem(answer, 500, "internal_error")
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_request_is_done_once_there(outer: Outer) -> None:
    key = {"idempotency-key": "k"}
    answers = [await outer.ask("POST", "/api/v1/queue/enqueue", json={"type": "ping"}, headers=key) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[1].headers["idempotency-replayed"] == "true"


async def test_events_come_from_there(outer: Outer) -> None:
    headers = {"authorization": f"Bearer {outer.token}"}
    async with asyncio.timeout(SECONDS), outer.http.stream("GET", f"{PREFIX}/api/v1/events", headers=headers) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        async for line in lines:
            if line == "event: ready":
                break
        receipt = await outer.app.enqueue("ping")
        async for line in lines:
            if line.startswith("data: ") and json.loads(line[6:]).get("id") == receipt.job_id:
                break
    while outer.api.hub.listening:
        await asyncio.sleep(0.01)


async def test_its_description_is_there_and_true(outer: Outer) -> None:
    told = (await outer.ask("GET", "/openapi.json")).json()
    assert "/api/v1/queue/enqueue" in told["paths"]
    servers = [server["url"] for server in told.get("servers", [{"url": "/"}])]
    base = servers[0].rstrip("/")
    assert (await outer.http.get(f"{base}/healthz")).json() == {"status": "ok"}


async def test_the_routes_around_it_are_untouched(outer: Outer) -> None:
    for path in ("/", "/healthz"):
        answer = await outer.http.get(path)
        assert answer.text == f"ours: {path}"
        assert "content-security-policy" not in answer.headers
    answer = await outer.http.get("/broken")
    assert (answer.status_code, answer.text) == (418, "our own error")
    answer = await outer.http.get("/nowhere")
    assert answer.status_code == 404
    assert "problem" not in answer.headers["content-type"]

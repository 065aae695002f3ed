"""Properties of all responses, whatever their kind; and requests from other origins."""

from __future__ import annotations

import pytest

from rowlock import ValueRefused
from web.conftest import MakeSite
from web.site import Site, problem
from web.wire import Answer, enqueue, head, wire

ORIGIN = "https://pages.example"
ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}


async def every_kind(site: Site) -> dict[str, Answer]:
    """An answer of each kind, by what it is."""
    site.app.store.refuse("counts", error=RuntimeError("this is unexpected: hunter2"))
    site.app.store.refuse("scan schedules")
    tag = (await site.get("/api/v1/schedules/runs")).headers["etag"]
    asked = {
        "200": head(site, path="/healthz", token=None),
        "201": enqueue(site, content_length="15") + b'{"type":"ping"}',
        "304": head(site, path="/api/v1/schedules/runs", if_none_match=tag),
        "400": b"nonsense\r\n\r\n",
        "401": head(site, token=None),
        "403": enqueue(site, "viewer", content_length="15") + b'{"type":"ping"}',
        "404": head(site, path="/nowhere"),
        "405": head(site, "DELETE"),
        "408": head(site, "POST", content_length="1"),
        "413": enqueue(site, content_length="99999999"),
        "415": head(site, "POST", content_type="text/plain", content_length="1") + b"x",
        "422": head(site, path="/api/v1/queue?limit=0"),
        "431": head(site, x="y" * 20_000),
        "500": head(site, path="/api/v1/queue/stats"),
        "503": head(site, path="/api/v1/schedules"),
        "405 HEAD": head(site, "HEAD"),
        "200 text": head(site, path="/metrics"),
    }
    answers = {}
    for name, data in asked.items():
        async with wire(site.port) as line:
            await line.send(data)
            answer = await line.answer(method="HEAD" if name.endswith("HEAD") else "GET")
            assert answer is not None, name
            assert answer.status == int(name.split()[0]), (name, answer)
            answers[name] = answer
    return answers


async def test_every_answer_is_safe_to_show_and_tells_nothing_of_the_server(make_site: MakeSite) -> None:
    site = await make_site(http_body_seconds=0.3)
    for name, answer in (await every_kind(site)).items():
        for header, value in ALWAYS.items():
            assert answer.headers.get(header) == value, name
        assert "cache-control" in answer.headers, name
        assert "server" not in answer.headers, name
        assert "x-powered-by" not in answer.headers, name
        assert not [header for header in answer.headers if header.startswith("access-control-")], name
        for secret in ("hunter2", "Traceback", "uvicorn", "FastAPI", "rowlock/", site.tokens["admin"]):
            assert secret.encode() not in answer.body, name
        if answer.status >= 400 and not name.endswith("HEAD"):
            answer.problem()


async def test_events_are_safe_to_show_too(site: Site) -> None:
    headers = {"authorization": f"Bearer {site.tokens['viewer']}"}
    async with site.http.stream("GET", "/api/v1/events", headers=headers) as answer:
        assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


async def test_pages_of_other_origins_are_not_let_in(site: Site) -> None:
    preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = await site.ask("OPTIONS", "/api/v1/queue/enqueue", None, headers=preflight)
    problem(answer, 401, "unauthorized")
    answer = await site.get("/api/v1/queue", headers={"origin": ORIGIN})
    assert answer.status_code == 200
    assert not [header for header in answer.headers if header.startswith("access-control-")]


async def test_pages_of_origins_that_are_set_are_let_in(make_site: MakeSite) -> None:
    site = await make_site(http_cors_origins=f"{ORIGIN}, https://more.example")
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,idempotency-key"}
    answer = await site.ask("OPTIONS", "/api/v1/queue/enqueue", None, headers={"origin": ORIGIN, **asked})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
    for path, token, status in (
        ("/api/v1/queue", "admin", 200),
        ("/api/v1/queue", None, 401),
        ("/nowhere", "admin", 404),
    ):
        answer = await site.get(path, token, headers={"origin": ORIGIN})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "etag" in answer.headers["access-control-expose-headers"].lower()
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", ORIGIN + ".evil.example", "http://pages.example", "*"]
)
async def test_and_no_others(make_site: MakeSite, origin: str) -> None:
    site = await make_site(http_cors_origins=ORIGIN)
    asked = {"origin": origin, "access-control-request-method": "POST"}
    answer = await site.ask("OPTIONS", "/api/v1/queue/enqueue", None, headers=asked)
    problem(answer, 403, "origin_not_allowed")
    assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
    assert answer.headers.get("access-control-allow-origin") is None
    answer = await site.get("/api/v1/queue", headers={"origin": origin})
    assert answer.headers.get("access-control-allow-origin") is None


@pytest.mark.parametrize("path", ["/api/v1/schedules", "/api/v1/queue"])
async def test_a_value_that_the_database_cannot_hold_is_the_requests_fault(site: Site, path: str) -> None:
    verb = {"/api/v1/schedules": "scan schedules", "/api/v1/queue": "page"}[path]
    site.app.store.refuse(verb, error=ValueRefused("PostgreSQL at db.internal refused a value: hunter2"))
    answer = await site.get(path)
    told = problem(answer, 422, "value_refused")
    assert "retry-after" not in answer.headers
    assert "do not retry it unchanged" in told["detail"]
    assert "hunter2" not in answer.text
    assert "db.internal" not in answer.text

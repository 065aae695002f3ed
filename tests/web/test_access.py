"""Authentication and roles: every route requires a token with its role, for its company."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute

from rowlock import FakeClock
from rowlock.control import tokens
from rowlock.http.asgi import Api
from rowlock.http.middleware.auth import OPEN, Needs
from rowlock.storage.access import Role
from web.conftest import MakeSite, Seconds
from web.site import Site, problem

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


def routes(site: Site) -> list[tuple[str, str, Needs | None]]:
    """Every method and path with what it needs."""
    found = []
    for route in Api(site.app).routes.routes:
        if isinstance(route, APIRoute):
            names = {"name": "nightly", "integration": "crm", "operation": "create_contact"}
            path = route.path_format.format(job_id=NOBODY, failure_id=NOBODY, import_id=NOBODY, **names)
            needs = [d.call for d in route.dependant.dependencies if isinstance(d.call, Needs)]
            found += [(method, path, needs[0] if needs else None) for method in route.methods]
    return found


async def test_every_route_but_two_needs_a_token(site: Site) -> None:
    walked = routes(site)
    assert len(walked) > 20
    for method, path, needs in walked:
        answer = await site.ask(method, path, None)
        if path in OPEN:
            assert answer.status_code == 200
            assert needs is None
        else:
            problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert needs is not None


async def test_what_is_nowhere_needs_a_token_too(site: Site) -> None:
    problem(await site.get("/nowhere", None), 401, "unauthorized")
    problem(await site.get("/nowhere"), 404, "not_found")
    problem(await site.get("/docs"), 404, "not_found")
    problem(await site.ask("DELETE", "/api/v1/queue"), 405, "method_not_allowed")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
async def test_a_role_may_do_what_it_covers_and_nothing_else(site: Site, role: Role) -> None:
    for method, path, needs in routes(site):
        if needs is None or path == "/api/v1/events":
            continue
        answer = await site.ask(method, path, role.value, **({"json": {}} if method == "POST" else {}))
        if role.covers(needs.role):
            assert answer.status_code not in (401, 403), (method, path, answer.text)
        else:
            problem(answer, 403, "forbidden")


async def test_a_companys_token_is_refused_what_concerns_all(site: Site) -> None:
    await site.add_token("acme", Role.ADMIN, "acme")
    for method, path, needs in routes(site):
        if needs is not None and needs.fleet:
            problem(await site.ask(method, path, "acme"), 403, "company_scope")


@pytest.mark.parametrize(
    "given",
    ["Bearer", "Bearer rlk_", "Basic abc", "rlk_abc", "Bearer nonsense", "Bearer rlk_" + "x" * 9_000],
)
async def test_nonsense_is_no_token(site: Site, given: str) -> None:
    answer = await site.ask("GET", "/api/v1/queue", None, headers={"authorization": given})
    problem(answer, 401, "unauthorized")


async def test_a_token_that_differs_in_one_character_is_unknown(site: Site) -> None:
    good = site.tokens["admin"]
    site.tokens["bad"] = good[:-1] + ("A" if good[-1] != "A" else "B")
    problem(await site.get("/api/v1/queue", "bad"), 401, "unauthorized")


async def test_a_revoked_token_is_refused(site: Site) -> None:
    assert (await site.get("/api/v1/queue", "viewer")).status_code == 200
    await tokens.revoke(site.app.store, site.records["viewer"].id)
    problem(await site.get("/api/v1/queue", "viewer"), 401, "unauthorized")


async def test_an_expired_token_is_refused(site: Site, clock: FakeClock) -> None:
    await site.add_token("brief", Role.VIEWER, expires_in_seconds=60)
    assert (await site.get("/api/v1/queue", "brief")).status_code == 200
    clock.advance(timedelta(seconds=61).total_seconds())
    problem(await site.get("/api/v1/queue", "brief"), 401, "unauthorized")


async def test_a_known_token_is_trusted_for_a_moment(make_site: MakeSite) -> None:
    site = await make_site(http_token_seconds=60.0)
    for _ in range(5):
        assert (await site.get("/api/v1/queue")).status_code == 200
    assert site.app.store.calls["read tokens by digest"] == 1


async def test_the_use_of_a_token_is_noted(site: Site) -> None:
    noted = site.app.store.next("update tokens")
    await site.get("/api/v1/queue", "viewer")
    await noted
    used = {token.name: token.last_used_at for token in await tokens.listed(site.app.store)}
    assert used["viewer"] is not None
    assert used["operator"] is None


async def test_guessing_is_slowed_down_and_good_tokens_are_not(make_site: MakeSite, rate_seconds: Seconds) -> None:
    site = await make_site(http_guesses_per_minute=30)  # and no token is trusted without a look
    await site.get("/api/v1/queue")
    answers = [
        await site.ask("GET", "/api/v1/queue", None, headers={"authorization": f"Bearer rlk_{number}"})
        for number in range(30)
    ]
    codes = [answer.status_code for answer in answers]
    assert codes[:9] == [401] * 9
    refused = answers[codes.index(429)]
    assert int(refused.headers["retry-after"]) >= 1
    assert (await site.get("/api/v1/queue")).status_code == 200
    assert (await site.get("/api/v1/queue", "viewer")).status_code == 200, "nor one that was not seen before"


async def test_a_token_may_ask_so_often(make_site: MakeSite, rate_seconds: Seconds) -> None:
    site = await make_site(http_requests_per_second=5)
    answers = [await site.get("/api/v1/queue/stats") for _ in range(20)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 15
    refused = answers[5:]
    told = problem(refused[0], 429, "too_many_requests")
    assert "5 requests per second" in told["detail"]
    assert int(refused[0].headers["retry-after"]) >= 1
    assert (await site.get("/api/v1/queue/stats", "viewer")).status_code == 200
    rate_seconds.now += 0.2
    assert [(await site.get("/api/v1/queue/stats")).status_code for _ in range(2)] == [200, 429]


async def test_raw_payloads_are_for_administrators(site: Site) -> None:
    job = await site.enqueue("doomed", payload={"password": "hunter2"})
    for role in ("viewer", "operator"):
        problem(await site.get(f"/api/v1/queue/{job['id']}?raw=true", role), 403, "forbidden")
    shown: dict[str, Any] = (await site.get(f"/api/v1/queue/{job['id']}?raw=true")).json()
    assert shown["payload"] == {"password": "hunter2"}
    assert (await site.get(f"/api/v1/queue/{job['id']}")).json()["payload"] == {"password": "[REDACTED]"}


async def test_many_requests_at_once_with_a_good_token_are_no_guesses(make_site: MakeSite) -> None:
    site = await make_site(http_guesses_per_minute=30)
    answers = await asyncio.gather(*(site.get("/healthz"), *(site.get("/api/v1/queue/stats") for _ in range(50))))
    assert {answer.status_code for answer in answers} == {200}
    assert site.app.store.calls["read tokens by digest"] < 50

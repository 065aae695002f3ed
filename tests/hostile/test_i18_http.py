"""I18: no request makes a 5xx, leaks a trace or passes unauthenticated: schemathesis over the whole description."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.running import Log
from faults.conftest import seed
from hostile.fuzz import fuzz
from rowlock.http.middleware.auth import Auth
from rowlock.http.middleware.error_boundary import ErrorBoundary
from rowlock.http.problem import Problem
from rowlock.management.schemas.fleet import QueuesSchema
from web.conftest import (
    MakeSite,
    clock,
    log,
    make_app,
    make_site,
    plain_environment,
    pytest_generate_tests,
    resource,
    rig,
    store,
    tmp_path,
)
from web.site import Site
from web.syncing import SECRET, declare_crm

__all__ = [
    "clock",
    "log",
    "make_app",
    "make_site",
    "plain_environment",
    "pytest_generate_tests",
    "resource",
    "rig",
    "seed",
    "store",
    "tmp_path",
]

CANARY = f"canary-{secrets.token_hex(8)}"
OPEN = {"clock": None, "allow_unknown_types": True, "http_guesses_per_minute": 1_000_000}
"""Guessing tokens is not slowed down here, since schemathesis sends wrong ones all the time."""


async def furnished(make_site: MakeSite, **settings: Any) -> Site:
    """A site with jobs in every state, failures, and secrets in their payloads."""
    site = await make_site(partial(declare_crm, name="hubspot"), **OPEN | settings)
    for number in range(3):
        given = {"email": f"{number}@example.org", "token": CANARY}
        await site.post("/api/v1/sync/hubspot/create_contact", {"payload": given, "companyId": "acme"})
    await site.enqueue("open", payload={"password": CANARY, "nested": [{"token": CANARY}]})
    await site.enqueue("open", delaySeconds=3_600, companyId="acme", limitKey="x")
    await site.enqueue("once", unique={"key": "held"})
    await site.dead(3, payload={"password": CANARY})
    cancelled = await site.enqueue("ping")
    await site.post(f"/api/v1/queue/{cancelled['id']}/cancel")
    await site.post("/api/v1/schedules/nightly/run")
    return site


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        pytest.param(["--max-examples", "10"], 560, id="short", marks=pytest.mark.timeout(600)),
        pytest.param(["--max-time", "330"], 700, id="long", marks=[pytest.mark.long, pytest.mark.timeout(800)]),
    ],
)
async def test_no_request_breaks_it(
    make_site: MakeSite,
    tmp_path: Path,
    log: Log,
    seed: int,
    options: list[str],
    seconds: float,
    record_property: Callable[[str, object], None],
) -> None:
    site = await furnished(make_site)
    found = await fuzz(site, tmp_path, [CANARY, SECRET, str(tmp_path)], *options, seed=seed, seconds=seconds)
    print(found.said[-20_000:])
    record_property("figure", f"{found.cases:,} requests")
    assert found.code == 0, "see what schemathesis says above"
    assert log.of("http.failed") == []
    assert log.of("http.store_failed") == []
    assert (await site.get("/healthz", None)).status_code == 200


PAUSE = "/api/v1/queues/{name}/pause"  # a wrong Idempotency-Key is refused before any route is reached
NOT_AUTH = ["--exclude-checks", "ignored_auth"]  # which would notice it first, and stop there
SEED = 1  # with five examples, chance must not decide whether a mutant is noticed
FEW = ["--max-examples", "5", "--phases", "coverage,fuzzing"]


async def test_the_attack_notices_that_errors_are_not_handled(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_up(self: ErrorBoundary, error: Exception, scope: Any) -> Problem:
        raise error

    site = await furnished(make_site)
    monkeypatch.setattr(ErrorBoundary, "_problem", gives_up)
    found = await fuzz(site, tmp_path, [], *FEW, "--include-path", PAUSE, *NOT_AUTH, seed=SEED, seconds=280)
    assert found.code == 1
    assert "Server error" in found.said
    assert "errors_are_problems" in found.said


async def test_the_attack_notices_that_a_trace_is_told(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talkative(self: ErrorBoundary, error: Exception, scope: Any) -> Problem:
        return Problem("not_found", f"Traceback (most recent call last): {error!r}")

    site = await furnished(make_site)
    monkeypatch.setattr(ErrorBoundary, "_problem", talkative)
    found = await fuzz(site, tmp_path, [], *FEW, "--include-path", PAUSE, *NOT_AUTH, seed=SEED, seconds=280)
    assert found.code == 1
    assert "nothing_leaks" in found.said


async def test_the_attack_notices_that_anyone_may_pass(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await furnished(make_site)
    admin = site.records["admin"]

    async def anyone(self: Auth, scope: Any) -> Any:
        return admin

    monkeypatch.setattr(Auth, "_token", anyone)
    found = await fuzz(site, tmp_path, [], *FEW, "--include-path", "/api/v1/queues", seed=SEED, seconds=280)
    assert found.code == 1
    assert "ignored_auth" in found.said or "without authentication" in found.said


async def test_the_attack_notices_that_the_description_is_not_true(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await furnished(make_site)
    monkeypatch.setattr(QueuesSchema, "json_bytes", lambda self: b'{"queues": [{"name": 1}]}')
    found = await fuzz(site, tmp_path, [], *FEW, "--include-path", "/api/v1/queues", seed=SEED, seconds=280)
    assert found.code == 1
    assert "Response violates schema" in found.said

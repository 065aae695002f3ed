"""Signing in to the dashboard: the cookie, forged requests, and secrets that never leave."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import httpx
import pytest
from starlette.requests import Request

from engine.running import Log
from rowlock import FakeClock
from rowlock.control import tokens
from rowlock.dashboard.rendering import back
from rowlock.dashboard.session import own_path
from rowlock.dashboard.shared_reads import Shared
from rowlock.http.middleware.session_cookie import opened_by_hand
from rowlock.storage.access import Role
from web.conftest import MakeSite, Seconds
from web.site import SECONDS, Site, problem

HERE = {"sec-fetch-site": "same-origin"}
PAGES = ("/", "/jobs", "/dead", "/imports", "/sync")


@pytest.fixture
async def browser(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Keeps cookies, and follows nothing."""
    async with httpx.AsyncClient(base_url=site.url, timeout=SECONDS, verify=False) as client:
        yield client


async def sign_in(browser: httpx.AsyncClient, token: str, **more: Any) -> httpx.Response:
    return await browser.post("/sign-in", data={"token": token, **more}, headers=HERE)


def cookie(answer: httpx.Response) -> dict[str, str]:
    """The attributes of the session's cookie, in lower case."""
    (header,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith("rowlock_session=")]
    parts = [part.strip().partition("=") for part in header.split(";")]
    return {"value": parts[0][2], **{name.lower(): value for name, _, value in parts[1:]}}


# -- in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, "/jobs/anything", "/imports/anything", "/sync/crm"])
async def test_a_page_without_a_session_leads_to_the_form_and_back(site: Site, path: str) -> None:
    answer = await site.get(f"{path}?type=a%26b", None)
    assert answer.status_code == 303
    to = urlsplit(answer.headers["location"])
    assert to.path == "/sign-in"
    assert parse_qs(to.query).get("next", ["/"])[0] == ("/" if path == "/" else f"{path}?type=a%26b")
    form = await site.get(answer.headers["location"], None)
    assert form.status_code == 200
    assert 'name="token"' in form.text


async def test_a_pasted_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    site: Site, browser: httpx.AsyncClient
) -> None:
    answer = await sign_in(browser, f" {site.tokens['viewer']}\n", next="/jobs?status=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?status=failed")
    kept = cookie(answer)
    assert kept["value"] == site.tokens["viewer"]
    assert {"httponly", "path", "samesite", "max-age"} <= kept.keys()
    assert (kept["samesite"].lower(), kept["path"]) == ("strict", "/")
    assert "secure" not in kept, "this is plain HTTP"
    assert "domain" not in kept
    assert int(kept["max-age"]) <= 30 * 86_400
    assert "<h1>Overview</h1>" in (await browser.get("/")).text


async def test_over_https_the_cookie_stays_there(make_site: MakeSite) -> None:
    site = await make_site(http_trusted_proxies="127.0.0.1")
    headers = HERE | {"x-forwarded-proto": "https"}
    answer = await site.ask("POST", "/sign-in", None, data={"token": site.tokens["viewer"]}, headers=headers)
    assert "secure" in cookie(answer)


async def test_the_cookie_ends_when_the_token_does(site: Site, browser: httpx.AsyncClient) -> None:
    brief = await site.add_token("brief", Role.VIEWER, expires_in_seconds=3_600)
    assert int(cookie(await sign_in(browser, brief))["max-age"]) <= 30 * 86_400


async def test_a_link_signs_in_and_the_token_does_not_stay_in_the_address(
    site: Site, browser: httpx.AsyncClient
) -> None:
    token = site.tokens["admin"]
    answer = await browser.get("/sign-in", params={"token": token}, headers={"sec-fetch-site": "none"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] in ("no-referrer", "same-origin")
    page = await browser.get("/")
    assert page.status_code == 200
    assert token not in page.text
    bad = await browser.get("/sign-in", params={"token": "rlk_wrong", "next": "/jobs"})
    assert (bad.status_code, "rlk" in bad.headers["location"]) == (303, False)
    assert "unknown, expired or revoked" in (await browser.get(bad.headers["location"])).text


MOZILLA = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/15.0 Safari/605.1.15"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": ""},
        {"sec-fetch-mode": "navigate"},
        {"referer": "https://elsewhere.example/page"},
        {"referer": "HOST/sign-in"},
        {"origin": "HOST"},
        {"host": "rowlock.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "10.0.0.7:8080"},
        {"user-agent": MOZILLA},
    ],
    ids=str,
)
async def test_no_page_can_sign_somebody_in_by_a_link(site: Site, headers: dict[str, str]) -> None:
    """Other sites send none of these headers over plain HTTP, or have a page of ours send people on."""
    sent = {name: value.replace("HOST", site.url) for name, value in headers.items()}
    answer = await site.get(f"/sign-in?token={site.tokens['admin']}&next=/jobs", None, headers=sent)
    assert "set-cookie" not in answer.headers
    assert answer.headers["location"] == "/sign-in?why=elsewhere&next=%2Fjobs"
    form = (await site.get(answer.headers["location"], None)).text
    assert "paste the token here" in form
    assert site.tokens["admin"] not in form


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:8080", "[::1]:8080"])
async def test_a_program_on_this_machine_may_follow_the_link(site: Site, host: str) -> None:
    address = f"/sign-in?token={site.tokens['admin']}"
    assert cookie(await site.get(address, None, headers={"host": host}))["value"] == site.tokens["admin"]


@pytest.mark.parametrize("client", [("10.0.0.7", 1), ("testclient", 1), None])
def test_a_program_elsewhere_may_not(client: tuple[str, int] | None) -> None:
    scope = {"headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1)}
    assert opened_by_hand(scope)
    assert not opened_by_hand(scope | {"client": client})


async def test_behind_a_proxy_the_machine_that_asks_counts(make_site: MakeSite) -> None:
    site = await make_site(http_trusted_proxies="127.0.0.1")
    address = f"/sign-in?token={site.tokens['admin']}"
    answer = await site.get(address, None, headers={"x-forwarded-for": "10.0.0.7"})
    assert "set-cookie" not in answer.headers


ASTRAY = [
    *("/sign-in", "/sign-in?token=rlk_x", "/sign-in/?token=rlk_x", "/sign-in#x", "/%73ign-in?token=rlk_x"),
    *("/%2Fsign-in?token=rlk_x", "/./sign-in?token=rlk_x", "/jobs/../sign-in?token=rlk_x", "/%2e/sign-in?token=rlk_x"),
    *("/jobs/%2E%2e/sign-in?token=rlk_x", "/../rowlock/sign-in?token=rlk_x", "/jobs/..%2Fsign-in", "/..%5csign-in"),
]


@pytest.mark.parametrize("given", ASTRAY)
async def test_nobody_is_sent_on_to_sign_in_as_another(site: Site, browser: httpx.AsyncClient, given: str) -> None:
    """A pasted token decides who is signed in, regardless of the link that led to the form."""
    assert own_path(given) == "/"
    assert 'name="next" value="/"' in (await browser.get("/sign-in", params={"next": given})).text
    answer = await sign_in(browser, site.tokens["viewer"], next=given)
    assert answer.headers["location"] == "/"


async def test_a_long_filter_is_still_there_after_signing_in(site: Site, browser: httpx.AsyncClient) -> None:
    """The reason of a group has up to 200 characters, each of which may be quoted, and quoted again."""
    path = f"/dead?type=crm.create_contact&reason={quote('😀' * 200)}"
    led = await browser.get(path)
    assert parse_qs(urlsplit(led.headers["location"]).query)["next"] == [path]
    form = await browser.get(led.headers["location"])
    assert html.escape(path) in form.text
    assert (await sign_in(browser, site.tokens["viewer"], next=path)).headers["location"] == path


async def test_a_long_notice_fits_into_its_cookie(site: Site) -> None:
    """Browsers drop a cookie of more than 4 kB, and with it what was to be said."""
    name = "😀" * 190
    answer = await site.ask("POST", f"/queues/{quote(name)}/pause", headers=HERE)
    (header,) = answer.headers.get_list("set-cookie")
    assert len(header) < 4_000
    page = await site.get("/", headers={"cookie": f"rowlock_notice={answer.cookies['rowlock_notice']}"})
    assert f"Queue {name} is paused: its jobs do not start" in page.text
    here = SimpleNamespace(state=SimpleNamespace(shared=Shared()))
    request = Request({"type": "http", "headers": [], "app": here, "root_path": ""})
    said_back = back(request, "/", "😀" * 499 + "é", "bad")
    assert len(said_back.headers["set-cookie"]) < 4_000
    said = unquote(said_back.headers["set-cookie"].partition("=")[2].partition(";")[0].removeprefix("bad."))
    assert said == "😀" * len(said), "no character is cut in two"
    assert len(said) >= 250


@pytest.mark.parametrize(
    "given",
    [
        *("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)"),
        *("evil.example", "", "/a\r\nset-cookie: x=y", "/\tevil", "/" + "a" * 7_000, "/%0d%0a\x00", "///evil.example"),
    ],
)
async def test_nobody_is_sent_to_another_site(site: Site, browser: httpx.AsyncClient, given: str) -> None:
    assert own_path(given) == "/"
    answer = await sign_in(browser, site.tokens["viewer"], next=given)
    assert answer.headers["location"] == "/"


def test_paths_of_ours_are_kept() -> None:
    for path in ("/", "/jobs?status=failed&type=a.b", "/imports/0193#errors", "/jobs?next=https://x.example"):
        assert own_path(path) == path


@pytest.mark.parametrize("token", ["", "nonsense", "rlk_wrong", "rlk_" + "x" * 300, "rlk_ümlaut", "rlk_a b"])
async def test_a_bad_token_is_refused_on_the_form(site: Site, browser: httpx.AsyncClient, token: str) -> None:
    answer = await sign_in(browser, token)
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "set-cookie" not in answer.headers
    assert token not in answer.text or not token


async def test_guesses_on_the_form_are_slowed_down_like_those_at_the_api(
    make_site: MakeSite, rate_seconds: Seconds
) -> None:
    site = await make_site(http_guesses_per_minute=30)
    answers = [
        await site.ask("POST", "/sign-in", None, data={"token": f"rlk_{number}"}, headers=HERE) for number in range(20)
    ]
    codes = [answer.status_code for answer in answers]
    assert codes[:9] == [401] * 9
    refused = answers[codes.index(429)]
    assert int(refused.headers["retry-after"]) >= 1
    assert "text/html" in refused.headers["content-type"]
    assert (await site.get("/api/v1/queue", None, headers={"authorization": "Bearer rlk_x"})).status_code == 429


async def test_a_stranger_cannot_send_much(site: Site) -> None:
    answer = await site.ask("POST", "/sign-in", None, data={"token": "x" * 10_000}, headers=HERE)
    assert answer.status_code == 413
    many = "&".join(f"a{number}=" for number in range(1_900)) + "&" * 200
    answer = await site.ask(
        *("POST", "/sign-in", None),
        content=many[:8_000],
        headers=HERE | {"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code in (401, 422)


# -- out -----------------------------------------------------------------------------------------------


async def test_signing_out_forgets_the_session_and_keeps_the_token(site: Site, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, site.tokens["viewer"])
    assert (await browser.get("/sign-out")).status_code == 405
    answer = await browser.post("/sign-out", headers=HERE)
    assert answer.status_code == 303
    assert int(cookie(answer)["max-age"]) == 0
    assert (await browser.get("/")).headers["location"] == "/sign-in"
    assert (await site.get("/api/v1/queue", "viewer")).status_code == 200


async def test_nobody_is_signed_out_from_another_site(site: Site, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, site.tokens["viewer"])
    answer = await browser.post("/sign-out", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_a_session_whose_token_was_revoked_ends_and_says_so(site: Site, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, site.tokens["viewer"])
    await tokens.revoke(site.app.store, site.records["viewer"].id)
    answer = await browser.get("/jobs")
    assert answer.status_code == 303
    assert int(cookie(answer)["max-age"]) == 0
    assert "Your session has ended" in (await browser.get(answer.headers["location"])).text


async def test_a_session_whose_token_has_expired_ends(site: Site, browser: httpx.AsyncClient, clock: FakeClock) -> None:
    brief = await site.add_token("brief", Role.VIEWER, expires_in_seconds=60)
    await browser.get("/sign-in", params={"token": brief})
    browser.cookies.set("rowlock_session", brief)  # the clock of the store is ahead of the one that cookies go by
    clock.advance(timedelta(seconds=61).total_seconds())
    assert (await browser.get("/")).headers["location"].endswith("why=ended")


# -- what the cookie is good for -----------------------------------------------------------------------

BY_OTHERS: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "HOST"},
    {"sec-fetch-site": "none"},
    {"origin": "https://elsewhere.example"},
    {"origin": "null"},
    {},
]


@pytest.mark.parametrize("headers", BY_OTHERS, ids=str)
async def test_other_sites_cannot_act_in_the_name_of_who_is_signed_in(
    site: Site, browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    await sign_in(browser, site.tokens["admin"])
    sent = {name: value.replace("HOST", site.url) for name, value in headers.items()}
    answer = await browser.post("/api/v1/queue/enqueue", json={"type": "ping"}, headers=sent)
    problem(answer, 403, "cross_site")
    answer = await browser.post("/queues/default/pause", headers=sent)
    assert answer.status_code == 403
    assert "text/html" in answer.headers["content-type"]
    assert not (await site.get("/api/v1/queues")).json()["queues"][0]["paused"]
    assert (await browser.post("/sign-in", data={"token": "x"}, headers=sent)).status_code == 403


@pytest.mark.parametrize("headers", [HERE, {"origin": "HOST"}], ids=str)
async def test_our_own_pages_can(site: Site, browser: httpx.AsyncClient, headers: dict[str, str]) -> None:
    await sign_in(browser, site.tokens["operator"])
    sent = {name: value.replace("HOST", site.url) for name, value in headers.items()}
    assert (await browser.post("/api/v1/queue/enqueue", json={"type": "ping"}, headers=sent)).status_code == 201
    assert (await browser.post("/queues/default/pause", headers=sent)).status_code == 303


async def test_the_api_takes_the_cookie_to_read_and_to_listen(site: Site, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, site.tokens["viewer"])
    assert (await browser.get("/api/v1/queue")).status_code == 200
    async with asyncio.timeout(SECONDS), browser.stream("GET", "/api/v1/events") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line == "event: ready":
                break


async def test_a_header_goes_before_the_cookie(site: Site, browser: httpx.AsyncClient) -> None:
    await sign_in(browser, site.tokens["admin"])
    headers = {"authorization": f"Bearer {site.tokens['viewer']}"}
    problem(await browser.post("/api/v1/queues/default/pause", headers=headers), 403, "forbidden")
    headers = {"authorization": "Bearer rlk_wrong"}
    problem(await browser.get("/api/v1/queue", headers=headers), 401, "unauthorized")


async def test_of_two_cookies_that_of_the_nearest_path_counts(site: Site) -> None:
    """Mounted twice on one host, a browser sends both, the longer path first."""
    sent = f"a=b; rowlock_session={site.tokens['viewer']}; rowlock_session={site.tokens['admin']}"
    assert "viewer" in (await site.get("/", None, headers={"cookie": sent})).text
    for nonsense in ("rowlock_session", "rowlock_session=", "=;;=", "xrowlock_session=rlk_x", 'rowlock_session=""'):
        assert (await site.get("/", None, headers={"cookie": nonsense})).headers["location"] == "/sign-in"


# -- what every page has -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, "/sign-in", "/nowhere"])
async def test_a_page_runs_no_foreign_script_and_is_kept_by_nobody(site: Site, path: str) -> None:
    answer = await site.get(path, headers={"accept": "text/html"})
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "etag" not in answer.headers
    assert not re.search(r"<style|style=|<script(?! type=\"module\" src=\"/assets)|\son[a-z]+=", answer.text)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)
    assert len(answer.headers.get_list("content-security-policy")) == 1


async def test_head_is_answered_like_get_without_the_page(site: Site) -> None:
    for path in PAGES:
        answer = await site.ask("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 500


async def test_assets_are_kept_for_a_year_under_their_hash(site: Site) -> None:
    form = (await site.get("/sign-in", None)).text
    for address in re.findall(r"\"(/assets/[^\"]+)\"", form):
        answer = await site.get(address, None)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        other = await site.get(re.sub(r"/assets/\w+", "/assets/0000", address), None)
        assert other.headers["cache-control"] == "no-cache"
    for path in ("/assets/0000/../session.py", "/assets/0000/nothing.css", "/assets/x", "/assets/"):
        assert (await site.get(path, None)).status_code == 404


async def test_what_is_nowhere_is_told_as_a_page_to_people_and_as_json_to_programs(site: Site) -> None:
    page = await site.get("/nowhere", headers={"accept": "text/html,*/*"})
    assert page.status_code == 404
    assert "<h1>Nothing exists at this path</h1>" in page.text
    problem(await site.get("/nowhere"), 404, "not_found")
    problem(await site.get("/api/v1/nowhere", headers={"accept": "text/html"}), 404, "not_found")


async def test_a_fault_is_told_as_a_page_too(site: Site) -> None:
    site.app.store.refuse("counts", error=RuntimeError("<b>secret</b>"))
    answer = await site.get("/")
    assert answer.status_code == 500
    assert "text/html" in answer.headers["content-type"]
    assert "secret" not in answer.text


async def test_a_token_is_in_no_log(site: Site, browser: httpx.AsyncClient, log: Log) -> None:
    token = site.tokens["admin"]
    site.app.store.refuse("read tokens by digest", error=RuntimeError("broken"))
    await browser.get("/sign-in", params={"token": token})
    await browser.get("/sign-in", params={"token": token})
    await sign_in(browser, token)
    await browser.get("/jobs")
    assert token not in log.stream.getvalue()

"""The overview: what it shows to whom, what may be done there, and what many open pages cost."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rowlock import FakeClock, Job
from rowlock.storage.access import Role
from rowlock.web.pages import charts, words
from rowlock.web.pages.overview import SECONDS as SHARED_SECONDS
from rowlock.web.pages.shared import Shared
from web.conftest import MakeSite
from web.site import Site

HERE = {"sec-fetch-site": "same-origin"}
WEIGHT_MAX = 100_000


def text(answer: httpx.Response) -> str:
    """What a person reads, without the tags."""
    assert answer.status_code == 200, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def part(answer: httpx.Response, id: str) -> str:
    """One section of the page."""
    begins = answer.text.index(f'id="{id}"')
    ends = re.compile(r"data-swap|</main>").search(answer.text, answer.text.index("data-swap", begins) + 1)
    assert ends is not None
    return answer.text[begins : ends.start()]


async def post(site: Site, path: str, token: str = "operator") -> httpx.Response:
    return await site.ask("POST", path, token, headers=HERE)


# -- what is there -------------------------------------------------------------------------------------


async def test_an_empty_system_says_what_to_do_first(site: Site) -> None:
    seen = text(await site.get("/"))
    assert "Nothing has run here yet" in seen
    assert "rowlock worker" in seen
    assert "rowlock enqueue" in seen
    assert "No worker has been seen" in seen


async def test_every_queue_is_shown_with_its_counts(site: Site) -> None:
    for _ in range(3):
        await site.enqueue("ping", queue="mail")
    await site.enqueue("ping", queue="mail", delaySeconds=3_600)
    await site.dead(2)
    answer = await site.get("/")
    assert "Nothing has run here yet" not in answer.text
    rows = {
        row[0]: row[1] for row in re.findall(r"<tr>\s*<th scope=\"row\"><a[^>]*>(\w+)</a>(.*?)</tr>", answer.text, re.S)
    }
    numbers = {name: re.findall(r'data-label="(\w+)">(?:<[^>]+>)*([\d,]+)', row) for name, row in rows.items()}
    assert dict(numbers["mail"]) == {"Waiting": "3", "Delayed": "1", "Processing": "0", "Failed": "0"}
    assert dict(numbers["default"])["Failed"] == "2"
    assert 'href="/dead?queue=default"' in answer.text


async def test_what_is_wrong_is_said_first(make_site: MakeSite) -> None:
    site = await make_site(spike_threshold=2)
    await site.app.store.pause("mail")
    await site.enqueue("ping", queue="mail")
    assert "attempts failed" not in text(await site.get("/"))
    await site.dead(2)
    await asyncio.sleep(SHARED_SECONDS + 0.1)  # as long as an answer is shared
    seen = part(await site.get("/"), "wrong")
    assert "2 attempts failed in the last hour" in seen
    assert 'href="/dead?queue=default"' in seen
    assert "Queue mail is paused" in seen


async def test_workers_are_shown_with_what_they_do_now(site: Site) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @site.app.job("long")
    async def long(job: Job) -> None:
        job.progress(40, "page 4 of <10>")
        begun.set()
        await end.wait()

    stop = asyncio.Event()
    receipt = await site.app.enqueue("long")
    working = asyncio.create_task(site.app.work(stop=stop))
    try:
        async with asyncio.timeout(20):
            await begun.wait()
        seen = part(await site.get("/"), "workers")
        assert f'href="/jobs/{receipt.job_id}"' in seen
        assert "1 alive" in seen
    finally:
        end.set()
        stop.set()
        await working


async def test_schedules_are_shown_with_their_last_and_next_run(site: Site) -> None:
    seen = part(await site.get("/"), "schedules")
    assert "0 3 * * *" in seen
    assert "never" in seen
    assert re.search(r"Next <time datetime=", seen)


# -- what may be done ----------------------------------------------------------------------------------


async def test_an_operator_pauses_and_resumes_a_queue(site: Site) -> None:
    assert 'action="/queues/default/pause"' in (await site.get("/", "operator")).text
    answer = await post(site, "/queues/default/pause")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    notice = answer.cookies["rowlock_notice"]
    page = await site.get("/", "operator", headers={"cookie": f"rowlock_notice={notice}"})
    assert "Queue default is paused: nothing of it starts until it is resumed." in text(page)
    assert 'action="/queues/default/resume"' in page.text, "seen at once, not when the shared answer is old"
    assert "rowlock_notice=" in page.headers["set-cookie"], "it is said once"
    await post(site, "/queues/default/resume")
    assert 'action="/queues/default/pause"' in (await site.get("/", "operator")).text


async def test_an_operator_pauses_resumes_and_runs_a_schedule(site: Site) -> None:
    await post(site, "/schedules/nightly/pause")
    assert 'action="/schedules/nightly/resume"' in (await site.get("/", "operator")).text
    await post(site, "/schedules/nightly/resume")
    assert 'action="/schedules/nightly/pause"' in (await site.get("/", "operator")).text
    answer = await post(site, "/schedules/nightly/run")
    assert re.fullmatch(r"/jobs/[0-9a-f-]{36}", answer.headers["location"])
    assert (await post(site, "/schedules/nothing/pause")).status_code == 404


async def test_a_viewer_is_offered_nothing_and_refused_it(site: Site) -> None:
    answer = await site.get("/", "viewer")
    assert re.findall(r'action="([^"]*)"', answer.text) == ["/sign-out"]
    for path in ("/queues/default/pause", "/schedules/nightly/run"):
        refused = await post(site, path, "viewer")
        assert refused.status_code == 403
        assert "text/html" in refused.headers["content-type"]
    assert not (await site.get("/api/v1/queues")).json()["queues"][0]["paused"]


async def test_a_companys_token_sees_its_own_and_nothing_of_the_fleet(site: Site) -> None:
    await site.add_token("acme", Role.ADMIN, "acme")
    await site.enqueue("ping", companyId="acme")
    for _ in range(4):
        await site.enqueue("ping", companyId="other", queue="secret-queue")
    answer = await site.get("/", "acme")
    assert "Jobs of acme" in answer.text
    assert "secret-queue" not in answer.text
    assert re.search(r"Queued</dt><dd><a[^>]*>1</a>", answer.text)
    assert 'id="workers"' not in answer.text
    assert (await post(site, "/queues/default/pause", "acme")).status_code == 403
    await site.add_token("other", Role.VIEWER, "other")
    assert re.search(r"Queued</dt><dd><a[^>]*>4</a>", (await site.get("/", "other")).text), "the answer is not shared"


HOSTILE = '"><script>alert(1)</script>/ü %2e?'


async def test_hostile_names_and_errors_are_text(make_site: MakeSite) -> None:
    site = await make_site(lambda app: app.schedule(HOSTILE, "ping", every_seconds=60))
    fleet = await site.get("/")
    assert "<script>alert(1)" not in fleet.text
    actions = [html.unescape(action) for action in re.findall(r'action="([^"]*)"', fleet.text)]
    (pause,) = [action for action in actions if "script" in action and action.endswith("/pause")]
    assert (await post(site, pause)).status_code == 303
    told = (await site.get("/api/v1/schedules")).json()["schedules"]
    assert {schedule["name"] for schedule in told if schedule["paused"]} == {HOSTILE}
    await site.add_token("<script>alert(2)</script>", Role.VIEWER, "acme<img src=x onerror=alert(3)>")
    answer = await site.get("/", "<script>alert(2)</script>")
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "&lt;script&gt;alert(2)" in answer.text
    spoken = await site.get("/", headers={"cookie": "rowlock_notice=good.%3Cscript%3Ealert(4)"})
    assert "<script>alert(4)" not in spoken.text
    assert "&lt;script&gt;alert(4)" in spoken.text


# -- what it costs -------------------------------------------------------------------------------------


async def test_fifty_open_pages_cost_the_database_no_more_than_one(make_site: MakeSite) -> None:
    """Each of 50 pages fetches itself when something happens; the store is looked at as often as for one of them."""
    site = await make_site(http_token_seconds=60.0, http_requests_per_second=1_000)
    await site.enqueue("ping")
    await site.get("/")
    await asyncio.sleep(SHARED_SECONDS + 0.1)

    async def cost(pages: int) -> tuple[Counter[str], float]:
        before, began = Counter(site.app.store.calls), time.monotonic()
        answers = await asyncio.gather(*(site.get("/") for _ in range(pages)))
        assert {answer.status_code for answer in answers} == {200}
        spent = Counter(site.app.store.calls)
        spent.subtract(before)
        del spent["touch_tokens"]
        return +spent, time.monotonic() - began

    one, _ = await cost(1)
    assert one["queues"] == 1
    await asyncio.sleep(SHARED_SECONDS + 0.1)
    many, seconds = await cost(50)
    looks = many["queues"]
    assert looks <= 1 + seconds // SHARED_SECONDS  # on a machine that is slow enough, a look is over before all have it
    assert many == Counter({name: count * looks for name, count in one.items()})


async def test_fifty_listening_pages_are_one_look(make_site: MakeSite) -> None:
    site = await make_site(http_token_seconds=60.0)

    streams = [site.http.stream("GET", "/api/v1/events", headers=_bearer(site)) for _ in range(50)]
    for stream in streams:
        assert (await stream.__aenter__()).status_code == 200
    before, began = site.app.store.calls["changes"], time.monotonic()
    async with asyncio.timeout(20):
        while site.app.store.calls["changes"] < before + 5:
            await site.app.store.next("changes")
    looks, seconds = site.app.store.calls["changes"] - before, time.monotonic() - began
    for stream in streams:
        await stream.__aexit__(None, None, None)
    assert looks <= 1 + seconds / (site.app.settings.http_event_ms / 1_000), "as often as for one"


def _bearer(site: Site) -> dict[str, str]:
    return {"authorization": f"Bearer {site.tokens['viewer']}"}


async def test_all_of_the_page_weighs_little(site: Site) -> None:
    for number in range(20):
        await site.enqueue("ping", queue=f"queue-{number}")
    await site.dead(3)
    answer = await site.get("/")
    assets = re.findall(r"\"(/assets/[^\"]+)\"", answer.text)
    assert len(assets) == 3
    weight = len(answer.content) + sum([len((await site.get(each, None)).content) for each in assets])
    assert weight < WEIGHT_MAX, weight


async def test_an_answer_is_shared_while_it_is_fresh_and_errors_are_not_kept() -> None:
    shared, asked = Shared(), 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 1:
            raise ValueError("the first time")
        return asked

    with pytest.raises(ValueError, match="the first time"):
        await shared.get("a", ask)
    assert await asyncio.gather(*(shared.get("a", ask) for _ in range(10))) == [2] * 10
    assert await shared.get("a", ask, 60) == 2
    assert await shared.get("b", ask) == 3
    shared.forget()
    assert await shared.get("a", ask) == 4
    for number in range(1_000):
        await shared.get(number, ask)
    assert len(shared._kept) <= 256


async def test_one_who_leaves_does_not_take_the_answer_from_others() -> None:
    shared, go = Shared(), asyncio.Event()

    async def ask() -> str:
        await go.wait()
        return "said"

    first = asyncio.create_task(shared.get("a", ask))
    await asyncio.sleep(0)
    second = asyncio.create_task(shared.get("a", ask))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == "said"


# -- charts and words ----------------------------------------------------------------------------------


def test_a_chart_says_in_words_what_it_shows_and_escapes_them() -> None:
    made = charts.bars([0, 5, 10], [0, 0, 1], 'Queue "<b>": 15 done')
    assert 'role="img" aria-label="Queue &#34;&lt;b&gt;&#34;: 15 done"' in made
    assert made.count("<path") == 2
    assert "<path" not in charts.bars([0, 0], [0, 0], "nothing")
    assert charts.bars([], [], "nothing").startswith("<svg")


def test_one_failure_among_thousands_is_seen() -> None:
    assert 'class="failed"' in charts.bars([10_000], [1], "")


def test_where_nobody_looked_the_line_has_a_gap() -> None:
    made = charts.line([1.0, 2.0, None, 4.0], "lag")
    line = re.search(r'class="line" d="([^"]*)"', made)
    assert line
    assert line[1].count("M") == 2
    assert charts.line([None, None], "lag").count("<path") == 0


@pytest.mark.parametrize(
    ("say", "given", "said"),
    [
        (words.count, 1_234_567, "1,234,567"),
        (words.count, None, "–"),
        (words.seconds, 0.0123, "12 ms"),
        (words.seconds, 1.23, "1.2 s"),
        (words.seconds, 59.9, "60 s"),
        (words.seconds, 61, "1 min 1 s"),
        (words.seconds, 3_725, "1 h 2 min"),
        (words.seconds, 90_000, "1 d 1 h"),
        (words.size, 999, "999 B"),
        (words.size, 1_500, "1.5 kB"),
        (words.size, 52_428_800, "52.4 MB"),
        (words.size, 5_000_000_000, "5.0 GB"),
        (words.sentence, "it is so", "It is so."),
        (words.exact, "2026-11-16T13:21:32.120Z", "2026-11-16 13:21:32 UTC"),
        (words.ago, None, "–"),
    ],
)
def test_numbers_and_times_are_said_as_people_do(say: Callable[[Any], str], given: Any, said: str) -> None:
    assert say(given) == said


async def test_a_moment_that_comes_is_said_so(clock: FakeClock) -> None:
    assert re.fullmatch(r"in \d+ y", words.ago("2999-01-01T00:00:00Z"))
    assert re.fullmatch(r"\d+ y ago", words.ago("2001-01-01T00:00:00Z"))

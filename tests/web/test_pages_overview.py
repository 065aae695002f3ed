"""The overview page: its contents and actions per role, and the cost of many open pages."""

from __future__ import annotations

import asyncio
import html
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rowlock import FakeClock, Job
from rowlock.dashboard import charts
from rowlock.dashboard import filters as words
from rowlock.dashboard.overview import SECONDS as SHARED_SECONDS
from rowlock.dashboard.shared_reads import Shared
from rowlock.ids import uuid7
from rowlock.management import ManagementService
from rowlock.management.queues import Standing
from rowlock.management.schemas.fleet import DoingSchema, HistorySchema, QueueSchema
from rowlock.management.schemas.schedules import SchedulesSchema
from rowlock.storage.access import Role
from rowlock.storage.records import NewJob, Status
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


async def test_types_that_no_worker_serves_are_named(site: Site) -> None:
    await site.app.store.enqueue([NewJob(uuid7(), f"gone.{number}", "{}") for number in range(12)])
    seen = text(await site.get("/"))
    assert "12 jobs wait for types that no worker serves: gone.0, gone.1, gone.10" in seen
    assert "gone.7 and 2 more" in seen


async def test_an_empty_system_says_what_to_do_first(site: Site) -> None:
    seen = text(await site.get("/"))
    assert "Nothing has run here yet" in seen
    assert "rowlock worker" in seen
    assert "rowlock enqueue" in seen
    assert "No worker has been seen" in seen


@pytest.mark.every_store
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


async def test_what_is_wrong_is_said_first(make_site: MakeSite, clock: FakeClock) -> None:
    site = await make_site(spike_threshold=2)
    await site.app.store.pause("mail")
    await site.enqueue("ping", queue="mail")
    assert "attempts failed" not in text(await site.get("/"))
    await site.dead(2)
    clock.advance(SHARED_SECONDS)  # as long as an answer is shared
    seen = part(await site.get("/"), "wrong")
    assert "2 attempts failed in the last hour" in seen
    assert 'href="/dead?queue=default"' in seen
    assert "Queue mail is paused" in seen


async def test_failures_count_by_queue_as_they_do_for_the_alert(make_site: MakeSite, clock: FakeClock) -> None:
    """The threshold is that of one queue: a few failures on each of many are no spike."""
    site = await make_site(spike_threshold=2)
    for queue in ("one", "other"):
        await site.enqueue("doomed", queue=queue)
    await site.app.work("one", "other", drain=True)
    assert "attempts failed" not in text(await site.get("/"))
    await site.enqueue("doomed", queue="one")
    await site.app.work("one", drain=True)
    clock.advance(SHARED_SECONDS)
    wrong = part(await site.get("/"), "wrong")
    assert "2 attempts failed in the last hour" in wrong
    assert 'href="/dead?queue=one"' in wrong
    assert "other" not in wrong


async def test_the_lag_of_now_is_that_of_now(site: Site, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last note may be from long ago, or none may have been taken since."""
    busy(monkeypatch, 3, lag_now=None)
    assert "none now" in text(await site.get("/"))
    busy(monkeypatch, 3, lag_now=7_500)
    clock.advance(SHARED_SECONDS)
    assert "2 h 5 min now" in text(await site.get("/"))


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
        async with asyncio.timeout(60):
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
    assert "Queue default is paused: its jobs do not start until it is resumed." in text(page)
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


async def test_fifty_open_pages_cost_the_database_no_more_than_one(make_site: MakeSite, clock: FakeClock) -> None:
    """Each of 50 pages fetches itself when something happens; the store is looked at as often as for one of them."""
    site = await make_site(http_token_seconds=60.0, http_requests_per_second=1_000)
    await site.enqueue("ping")
    await site.get("/")
    clock.advance(SHARED_SECONDS)

    async def cost(pages: int) -> Counter[str]:
        before = Counter(site.app.store.calls)
        answers = await asyncio.gather(*(site.get("/") for _ in range(pages)))
        assert {answer.status_code for answer in answers} == {200}
        spent = Counter(site.app.store.calls)
        spent.subtract(before)
        for verb in ("read tokens", "update tokens"):  # the use of the token is noted
            del spent[verb]
        return +spent

    one = await cost(1)
    assert one["queues"] == 1
    assert (await cost(1))["queues"] == 0, "it is shared until the clock has moved on"
    clock.advance(SHARED_SECONDS)
    assert await cost(50) == one


async def test_fifty_listening_pages_are_one_look(make_site: MakeSite) -> None:
    site = await make_site(http_token_seconds=60.0)

    streams = [site.http.stream("GET", "/api/v1/events", headers=_bearer(site)) for _ in range(50)]
    for stream in streams:
        assert (await stream.__aenter__()).status_code == 200
    before, began = site.app.store.calls["changes"], time.monotonic()
    async with asyncio.timeout(60):
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
    assert await weight(site, answer) < WEIGHT_MAX


def busy(monkeypatch: pytest.MonkeyPatch, many: int, lag_now: float | None = 83.4) -> None:
    """Add this many queues, workers and schedules, all active: in each minute jobs end, fail and wait."""
    dice, at = random.Random(16), "2026-11-16T13:21:32.120Z"
    names = [f"customer-mails-{number:03}" for number in range(many)]
    standing = {"paused": False, "ready": 12_345, "delayed": 1_234, "processing": 123, "oldestReadySeconds": lag_now}
    job = {"queue": "mails", "companyId": None, "attempt": 1, "type": "customers.send_mail", "startedAt": at}
    doing = job | {"progress": 40, "message": "page 4 of 10, then the rest"}
    run = {"name": "nightly", "tick": at, "startedAt": at, "enqueuedAt": at, "endedAt": at, "status": "failed"}
    last = run | {"jobId": str(uuid4()), "error": "TimeoutError: late"}

    def minutes() -> dict[str, Any]:
        ends = {
            name: [dice.randrange(1, 2_000) for _ in range(61)] for name in ("succeeded", "failed", "failedAttempts")
        }
        return ends | {"lagSeconds": [dice.uniform(1, 3_600) for _ in range(61)]}

    answers = {
        "standing": Standing(
            jobs=dict(zip(Status, (9, 9, 9_999_999, 99, 9), strict=True)),
            queues=[QueueSchema.model_validate(standing | {"name": name}) for name in names],
            ended={name: {Status.FAILED: 4_321} for name in names},
            workers=[],
            unserved_types=[],
            warnings=[f"queue {name} is paused (12,345 jobs are ready)" for name in names],
        ),
        "history": HistorySchema.model_validate({"minutes": [at] * 61, "queues": {name: minutes() for name in names}}),
        "doing": DoingSchema.model_validate(
            {
                "workers": [
                    {"id": name, "name": f"worker-{name}", "queues": names[:3], "startedAt": at, "seenAt": at}
                    | {"alive": True, "jobs": [doing | {"id": str(uuid4())} for _ in range(10)]}
                    for name in names
                ],
                "more": False,
            }
        ),
        "schedules": SchedulesSchema.model_validate(
            {
                "schedules": [
                    {"name": f"nightly-{name}", "paused": False, "jobType": "customers.send_mail", "missed": "skip"}
                    | {"spec": "*/15 3-7 * * 1-5", "lastRun": last, "nextAt": at}
                    for name in names
                ]
            }
        ),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(ManagementService, name, _answers(answer))


def _answers(answer: Any) -> Callable[..., Any]:
    async def ask(management: ManagementService, *args: Any) -> Any:
        return answer

    return ask


async def weight(site: Site, answer: httpx.Response) -> int:
    """With the stylesheet, the module and the icon, of which nothing is cached yet."""
    assets = re.findall(r"\"(/assets/[^\"]+)\"", answer.text)
    assert len(assets) == 3
    return len(answer.content) + sum([len((await site.get(each, None)).content) for each in assets])


async def test_the_page_weighs_little_however_much_is_going_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(monkeypatch, 150)
    answer = await site.get("/")
    weighed = await weight(site, answer)
    assert weighed < WEIGHT_MAX
    assert part(answer, "queues").count('<th scope="row">') == 20
    assert "130 more queues have less to show." in text(answer)
    assert part(answer, "workers").count("<article") == 6
    assert part(answer, "schedules").count("<article") == 8
    assert answer.text.count('href="/?all=1"') == 3
    every = await site.get("/?all=1")
    assert part(every, "queues").count('<th scope="row">') == 100
    assert "50 more queues have less to show." in text(every)
    assert part(every, "workers").count("<article") == 50
    assert part(every, "schedules").count("<article") == 100
    assert "all=1" not in every.text


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
    assert len(shared._kept) <= 64


async def test_an_answer_that_is_old_is_not_kept() -> None:
    """An answer may be as large as a payload: the next read drops it, and it is dropped without reads, too."""
    shared = Shared()

    async def ask() -> str:
        return "said"

    for number in range(20):
        await shared.get(number, ask, 0)
    assert len(shared._kept) <= 1, "the next read drops old answers"
    await shared.get("slow", ask, 60)
    await shared.get("quick", ask, 0.01)
    async with asyncio.timeout(60):
        while "quick" in shared._kept:
            await asyncio.sleep(0.01)
    assert list(shared._kept) == ["slow"]


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


def test_a_chart_is_short() -> None:
    """Twenty queues have two each."""
    dice = random.Random(16)
    done, failed = ([dice.randrange(1, 9_999) for _ in range(60)] for _ in range(2))
    assert len(charts.bars(done, [0] * 60, "")) < 600
    assert len(charts.bars(done, failed, "")) < 900
    assert len(charts.line([float(value) for value in done], "", filled=False)) < 500
    assert len(charts.bars([7] * 60, [0] * 60, "")) < 180


def test_a_chart_shows_what_there_was() -> None:
    made = charts.bars([1, 1, 0, 2], [0, 1, 0, 0], "")
    assert re.findall(r'class="(\w+)" d="([^"]*)"', made) == [
        ("done", "M0 40v-19h1v-19h1v38h1v-38h1V40z"),
        ("failed", "M0 40h1v-19h1v19h2V40z"),
    ]
    made = charts.line([0.0, 2.0, 2.0, 2.0, 1.0], "")
    assert re.findall(r'class="(\w+)" d="([^"]*)"', made) == [
        ("area", "M0 40v0l1-38h2l1 19V40z"),
        ("line", "M0 40l1-38h2l1 19"),
    ]
    assert charts.coarser([1, 2, 3, None, 4, 2, None, None, None, 7], max) == [3, 4, None, 7]


async def test_a_moment_that_comes_is_said_so(clock: FakeClock) -> None:
    assert re.fullmatch(r"in \d+ y", words.ago("2999-01-01T00:00:00Z"))
    assert re.fullmatch(r"\d+ y ago", words.ago("2001-01-01T00:00:00Z"))

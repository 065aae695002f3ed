"""The client returns what the management service returns, over a failing network; errors are those of local calls."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin

import pytest

from rowlock import (
    BadPayload,
    DuplicateJob,
    JobNotFound,
    JobNotRetryable,
    JobNotWaiting,
    PayloadTooLarge,
    QueueFull,
    SettingsError,
    Unique,
    UnknownJobType,
)
from rowlock.client import Client, Event
from rowlock.client import stream as streaming
from rowlock.client import wire as wiring
from rowlock.control import tokens
from rowlock.errors import BadCursor, CompanyMismatch, JobIsOver, RequestFailed, RowlockError, ScheduleNotFound
from rowlock.management import ManagementService
from rowlock.management.endpoint import endpoints_of, signature_of
from rowlock.management.schemas.base import Schema
from rowlock.management.schemas.dead_letters import RetrySchema
from rowlock.management.schemas.fleet import SwitchedSchema
from rowlock.storage.access import Role
from web.conftest import MakeSite, Seconds
from web.relay import Relay
from web.site import Site

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
TOKEN = "rlk_canary"
ASKED_BY_PAGES = {"count_dead", "import_again", "import_error_rows", "import_kept", "import_type_of", "standing"}
ASKED_BY_ROUTES = {"run_schedule_once"}
NOT_JSON = {"import_errors_csv", "import_file", "import_template", "metrics"}  # as a file or as text
Ask = ManagementService | Client


@pytest.fixture
async def client(site: Site) -> AsyncIterator[Client]:
    async with Client(site.url, site.tokens["admin"]) as client:
        yield client


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try comes soon."""
    monkeypatch.setattr(wiring, "_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wiring, "_AGAIN_SECONDS_MAX", 0.05)


# -- what is asked and answered --------------------------------------------------------------------


def test_the_client_has_every_endpoint_with_its_parameters_and_result() -> None:
    methods = {name for name, _ in inspect.getmembers(ManagementService, inspect.isfunction) if name[0] != "_"}
    declared = set(endpoints_of(ManagementService))
    assert methods - ASKED_BY_PAGES - ASKED_BY_ROUTES - NOT_JSON == declared
    for name in declared | NOT_JSON:
        wanted, found = (plain_signature(getattr(kind, name)) for kind in (ManagementService, Client))
        assert found == wanted, name


def as_json(found: Any) -> Any:
    """An answer as it is sent, with milliseconds; metrics are bytes as they are."""
    return found.json_object() if isinstance(found, Schema) else found


def plain_signature(method: Any) -> tuple[list[inspect.Parameter], Any]:
    """The parameters without what describes them, and the result."""
    signature = signature_of(method)
    own = ("reserved", "died_before")  # of the management alone
    parameters = [
        each.replace(
            annotation=get_args(each.annotation)[0] if get_origin(each.annotation) is Annotated else each.annotation
        )
        for each in signature.parameters.values()
        if each.name not in own
    ]
    return parameters, signature.return_annotation


@pytest.mark.every_store
async def test_a_client_answers_what_the_management_answers(site: Site, client: Client) -> None:
    (dead,) = await site.dead(payload={"password": "hunter2"})
    await site.enqueue("mail", payload={"to": "a@b.c"}, companyId="acme")
    await client.run_schedule("nightly")
    (failure,) = (await client.failures()).failures
    management = ManagementService(site.app)
    questions: list[Callable[[Ask], Awaitable[Any]]] = [
        lambda ask: ask.job(dead),
        lambda ask: ask.job(dead, raw=True),
        lambda ask: ask.jobs(),
        lambda ask: ask.jobs(status="failed", type="doomed", queue="default", limit=1),
        lambda ask: ask.jobs(company_id="acme"),
        lambda ask: ask.jobs(reason="it never works"),
        lambda ask: ask.jobs(reason=""),
        lambda ask: ask.jobs(since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2050, 1, 1, tzinfo=UTC)),
        lambda ask: ask.timeline(dead),
        lambda ask: ask.timeline(dead, stacks=False),
        lambda ask: ask.dead_letters(type="doomed", limit=1),
        lambda ask: ask.dead_groups(),
        lambda ask: ask.dead_groups(type="doom*", queue="default", company_id="acme"),
        lambda ask: ask.history(3),
        lambda ask: ask.doing(),
        lambda ask: ask.stats(),
        lambda ask: ask.failures(job_name="doomed", job_id=dead, final=True, unresolved=True),
        lambda ask: ask.failures(final=False),
        lambda ask: ask.failure(failure.id),
        lambda ask: ask.retry_dead(dry_run=True),
        lambda ask: ask.discard_dead(type="doomed", dry_run=True),
        lambda ask: ask.retry_dead(ids=[]),
        lambda ask: ask.retry_dead(reason="it never works", dry_run=True),
        lambda ask: ask.discard_dead(reason="", dry_run=True),
        lambda ask: ask.queues(),
        lambda ask: ask.queue_health(),
        lambda ask: ask.queue_health("other"),
        lambda ask: ask.health(),
        lambda ask: ask.metrics(),
        lambda ask: ask.schedules(),
        lambda ask: ask.runs("nightly", limit=1),
    ]
    for question in questions:
        assert as_json(await question(client)) == as_json(await question(management))
    assert (await client.job(dead)).payload == {"password": "[REDACTED]"}
    assert (await client.job(dead, raw=True)).payload == {"password": "hunter2"}


async def test_a_job_is_enqueued_with_all_that_can_be_said(client: Client) -> None:
    later = datetime(2031, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    job = await client.enqueue(
        "mail",
        {"to": "a@b.c", "subject": "Grüße \u2028"},
        queue="other",
        priority=7,
        at=later,
        max_attempts=2,
        company_id="acme",
        unique=Unique.window(60, key="k", on_conflict="return_existing"),
        limit_key="api:1",
    )
    assert job.created is True
    assert job.payload == {"to": "a@b.c", "subject": "Grüße \u2028"}
    assert (job.queue, job.priority, job.max_attempts) == ("other", 7, 2)
    assert (job.company_id, job.limit_key) == ("acme", "api:1")
    assert job.available_at == later
    again = await client.enqueue(
        "mail",
        {"to": "b@b.c"},
        company_id="acme",
        unique=Unique.window(60, key="k", on_conflict="return_existing"),
    )
    assert (again.id, again.created) == (job.id, False)


async def test_what_operators_do_is_done(site: Site, client: Client) -> None:
    first, second, third = await site.dead(3)
    assert (await client.retry(first)).status == "queued"
    assert (await client.cancel(first)).status == "cancelled"
    page = await client.retry_dead(type="doomed", limit=1)
    assert (page.retried, page.next_cursor is not None) == (1, True)
    rest = await client.discard_dead(type="doomed", limit=1, cursor=page.next_cursor)
    assert rest.discarded == 1
    assert (await client.job(third)).status == "queued"
    with pytest.raises(JobNotFound):
        await client.job(second)
    later = await client.enqueue("ping", delay_seconds=60)
    assert (await client.run_now(later.id)).available_at < later.available_at
    with pytest.raises(JobNotWaiting):
        await client.run_now(first)
    assert await client.pause_queue("a..b") == SwitchedSchema(name="a..b", paused=True, known=False)
    assert (await client.resume_queue("..")).name == ".."
    assert (await client.pause_schedule("nightly")).paused is True
    assert (await client.resume_schedule("nightly")).paused is False
    assert (await client.prune()).removed["failed"] == 0


async def test_a_failure_is_retried(site: Site, client: Client) -> None:
    (job_id,) = await site.dead()
    (failure,) = (await client.failures()).failures
    assert await client.retry_failure(failure.id) == RetrySchema(failure_id=failure.id, job_id=job_id)


async def test_waiting_ends_with_the_job_or_with_patience(site: Site, client: Client) -> None:
    job = await client.enqueue("ping")
    assert (await client.wait(job.id, 0.0)).status == "queued"
    waiting = asyncio.create_task(client.wait(job.id, 20.0))
    await site.app.work(drain=True)
    assert (await waiting).result == {"pong": True}


# -- errors ----------------------------------------------------------------------------------------

MISTAKES: list[tuple[Callable[[Ask], Awaitable[Any]], type[RowlockError]]] = [
    (lambda ask: ask.enqueue("nonsense"), UnknownJobType),
    (lambda ask: ask.enqueue("mail"), BadPayload),
    (lambda ask: ask.enqueue("mail", {"to": float("nan")}), BadPayload),
    (lambda ask: ask.enqueue("ping", priority=40_000), BadPayload),
    (lambda ask: ask.enqueue("ping", at=datetime(2030, 1, 1)), BadPayload),
    (lambda ask: ask.enqueue("open", {"text": "x" * 1_048_576}), PayloadTooLarge),
    (lambda ask: ask.enqueue("ping", queue=""), SettingsError),
    (lambda ask: ask.job(NOBODY), JobNotFound),
    (lambda ask: ask.job("stats"), JobNotFound),
    (lambda ask: ask.job("../queues"), JobNotFound),
    (lambda ask: ask.retry(NOBODY), JobNotFound),
    (lambda ask: ask.cancel(""), JobNotFound),
    (lambda ask: ask.jobs(cursor="x"), BadCursor),
    (lambda ask: ask.failures(cursor="x"), BadCursor),
    (lambda ask: ask.failure(NOBODY), JobNotFound),
    (lambda ask: ask.failure(""), JobNotFound),
    (lambda ask: ask.retry_failure("x"), JobNotFound),
    (lambda ask: ask.pause_queue(""), SettingsError),
    (lambda ask: ask.pause_schedule("yearly"), ScheduleNotFound),
    (lambda ask: ask.resume_schedule("yearly"), ScheduleNotFound),
    (lambda ask: ask.run_schedule("yearly"), ScheduleNotFound),
]


async def test_mistakes_are_the_same_errors_here_and_there(site: Site, client: Client) -> None:
    management = ManagementService(site.app)
    for number, (mistake, kind) in enumerate(MISTAKES):
        told = []
        for ask in (management, client):
            with pytest.raises(kind) as caught:
                await mistake(ask)
            assert type(caught.value) is kind, number
            told.append(str(caught.value))
        assert told[0] == told[1]


async def test_states_that_do_not_allow_it_are_the_same_errors(site: Site, client: Client) -> None:
    job = await client.enqueue("once", {"number": 1})
    with pytest.raises(DuplicateJob) as duplicate:
        await client.enqueue("once", {"number": 1})
    assert duplicate.value.existing_job_id == job.id
    with pytest.raises(JobNotRetryable):
        await client.retry(job.id)
    await client.cancel(job.id)
    with pytest.raises(JobIsOver):
        await client.cancel(job.id)


async def test_a_full_queue_is_told_at_once(make_site: MakeSite) -> None:
    site = await make_site(queue_size_max=1)
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["operator"]) as client:
        await client.enqueue("ping")
        with pytest.raises(QueueFull):
            await client.enqueue("ping")
        assert relay.asked.count(b"POST /api/v1/queue/enqueue") == 2, "and not tried again"


async def test_what_a_token_may_not_do_is_refused(site: Site) -> None:
    await site.add_token("scoped", Role.OPERATOR, "acme")
    async with Client(site.url, site.tokens["viewer"]) as viewer:
        with pytest.raises(RequestFailed) as refused:
            await viewer.enqueue("ping")
        assert (refused.value.code, refused.value.status) == ("forbidden", 403)
    async with Client(site.url, site.tokens["scoped"]) as scoped:
        with pytest.raises(CompanyMismatch):
            await scoped.enqueue("ping", company_id="other")
    async with Client(site.url, TOKEN) as stranger:
        with pytest.raises(RequestFailed) as unknown:
            await stranger.stats()
        assert (unknown.value.code, unknown.value.status) == ("unauthorized", 401)
        assert TOKEN not in f"{unknown.value!r} {stranger!r}"


# -- a wire that fails -----------------------------------------------------------------------------


async def test_a_request_whose_answer_is_lost_is_sent_again_and_done_once(site: Site, at_once: None) -> None:
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["operator"]) as client:
        relay.answers_to_lose = 2
        job = await client.enqueue("ping")
        assert relay.answers_to_lose == 0
        assert relay.asked.count(b"POST /api/v1/queue/enqueue") == 3
        assert [found.id for found in (await client.jobs()).jobs] == [job.id]


async def test_a_server_that_is_busy_is_asked_again_when_it_says(
    make_site: MakeSite, rate_seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await make_site(http_requests_per_second=1)
    waited = list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        rate_seconds.now += seconds

    monkeypatch.setattr(wiring, "asyncio", SimpleNamespace(sleep=sleep))
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["viewer"]) as client:
        await client.stats()
        assert waited == []
        await client.stats()
        assert relay.asked.count(b"GET /api/v1/queue/stats") == 3
    assert len(waited) == 1
    assert waited[0] >= 1, "as long as the server says"


async def test_a_server_that_stays_busy_is_left_alone(
    make_site: MakeSite, rate_seconds: Seconds, at_once: None
) -> None:
    site = await make_site(http_requests_per_second=1)
    async with Client(site.url, site.tokens["viewer"]) as client:
        await client.stats()
        with pytest.raises(RequestFailed) as busy:
            await client.stats()
    assert (busy.value.code, busy.value.status) == ("too_many_requests", 429)


async def test_a_server_that_is_not_there(at_once: None) -> None:
    with socket.socket() as nobody:  # holds the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with Client(url, TOKEN) as client:
            for ask in (client.stats(), client.enqueue("ping"), anext(aiter(client.events()))):
                with pytest.raises(RequestFailed) as away:
                    await ask
                assert away.value.code == "server_unavailable"
                assert str(away.value).startswith(f"{url} cannot be reached")
                assert "rowlock serve" in str(away.value)
                assert TOKEN not in repr(away.value)


async def test_a_server_that_does_not_answer(at_once: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Client(url, TOKEN, timeout_seconds=0.05) as client:
            with pytest.raises(RequestFailed, match=r"no answer within 0\.05 s"):
                await client.stats()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
        b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.example/\r\ncontent-length: 0\r\n\r\n",
        b'HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n"x',
    ],
)
async def test_what_is_no_rowlock_server_is_named(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
            with pytest.raises(RequestFailed, match="not as a Rowlock server does") as other:
                await client.stats()
    assert other.value.code == "not_rowlock"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://jobs.example.org", "must not travel in the clear"),
        ("http://10.0.0.1:8000", "must not travel in the clear"),
        ("http://0.0.0.0:8000", "must not travel in the clear"),
        ("ftp://jobs.example.org", "must be a URL"),
        ("jobs.example.org", "must be a URL"),
        ("http://", "must be a URL"),
        ("", "must be a URL"),
        ("https://user:hunter2@jobs.example.org", "may have no user"),
        ("https://jobs.example.org/?token=hunter2", "may have no user"),
    ],
)
def test_an_address_that_no_token_may_go_to(url: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        Client(url, TOKEN)
    assert "hunter2" not in str(refused.value)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("url", ["https://jobs.example.org/prefix", "http://localhost:8000", "http://[::1]:8000"])
async def test_an_address_that_a_token_may_go_to(url: str) -> None:
    async with Client(url, TOKEN) as client:
        assert repr(client) == f"Client('{url}')"


async def test_the_clear_is_for_those_who_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    await Client("http://10.0.0.1", TOKEN, insecure=True).close()
    monkeypatch.setenv("ROWLOCK_INSECURE", "1")
    await Client("http://10.0.0.1", TOKEN).close()


@pytest.mark.parametrize("token", ["", "rlk_a b", "rlk_a\nHost: x", "rlk_ü", "x" * 201])
def test_what_cannot_be_a_token_is_not_sent(token: str) -> None:
    with pytest.raises(SettingsError, match="the token is empty, or has characters") as refused:
        Client("https://jobs.example.org", token)
    assert not token or token not in str(refused.value)


# -- events ----------------------------------------------------------------------------------------


async def next_job(events: AsyncIterator[Event]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        async for event in events:
            if event.kind == "job":
                return event.data
    raise AssertionError("the events ended")


async def test_events_tell_what_happens(site: Site, client: Client) -> None:
    async with aclosing(client.events(type="ping")) as events:
        assert (await anext(events)).kind == "ready"
        await site.enqueue("mail", payload={"to": "a@b.c"})
        job = await site.enqueue("ping")
        assert (await next_job(events))["id"] == job["id"]


async def test_events_go_on_after_a_broken_connection_where_it_ended(site: Site, at_once: None) -> None:
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["viewer"]) as client:
        async with aclosing(client.events(queue="default")) as events:
            ready = await anext(events)
            assert ready.kind == "ready"
            first = await site.enqueue()
            assert (await next_job(events))["id"] == first["id"]
            relay.cut()
            second = await site.enqueue()
            while (await next_job(events))["id"] != second["id"]:
                pass  # some come twice
        assert relay.asked.count(b"GET /api/v1/events") == 2
        assert relay.asked.lower().count(b"last-event-id: ") == 1


async def test_events_end_for_a_token_that_is_revoked(site: Site, at_once: None) -> None:
    async with (
        Relay(site.port) as relay,
        Client(relay.url, site.tokens["viewer"]) as client,
        aclosing(client.events()) as events,
    ):
        assert (await anext(events)).kind == "ready"
        await tokens.revoke(site.app.store, site.records["viewer"].id)
        relay.cut()
        with pytest.raises(RequestFailed) as refused:
            await next_job(events)
    assert refused.value.code == "unauthorized"


async def test_data_cannot_end_a_line_of_events() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        whole = 'retry: 2000\n\n:\n\nid: 1-1\nevent: job\ndata: {"message":"a\u2028b\u0085c"}\n\nid: 2-2\nevent: g'
        for byte in whole.encode():
            yield bytes([byte])

    found = [event async for event in streaming._parsed(chunks())]
    assert found == [Event("job", {"message": "a\u2028b\u0085c"}, "1-1")]


async def test_an_event_without_an_end_is_refused() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    with pytest.raises(RequestFailed, match="too long"):
        await anext(streaming._parsed(chunks()))

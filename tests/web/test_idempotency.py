"""Idempotency-Key: a repeated request gets the stored response and does nothing twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rowlock import DuplicateJob, QueueFull, Unique
from rowlock.errors import StoreError, StoreUnavailable
from rowlock.ids import uuid7
from rowlock.jobs.worker.maintenance import prune_access
from rowlock.management import ManagementService
from rowlock.storage.access import RequestAnswer, RequestState, Role
from rowlock.storage.records import OnConflict
from web.conftest import MakeSite
from web.site import Site, problem

ENQUEUE = "/api/v1/queue/enqueue"
PING = {"type": "ping"}


async def send(site: Site, key: str, given: Any = None, path: str = ENQUEUE, token: str = "admin") -> Any:
    return await site.post(path, PING if given is None else given, token, headers={"idempotency-key": key})


async def count(site: Site) -> int:
    return len((await site.get("/api/v1/queue")).json()["jobs"])


async def test_the_same_request_again_is_answered_as_before(site: Site) -> None:
    first = await send(site, "k1")
    again = await send(site, "k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await count(site) == 1
    await send(site, "k2")
    assert await count(site) == 2


async def test_an_error_is_answered_again_too(site: Site) -> None:
    first = await send(site, "k", {"type": "nobody"})
    again = await send(site, "k", {"type": "nobody"})
    problem(first, 422, "unknown_job_type")
    assert again.json() == first.json()
    assert again.headers["content-type"] == "application/problem+json"


async def test_a_key_is_for_one_request(site: Site) -> None:
    await send(site, "k")
    problem(await send(site, "k", {"type": "ping", "priority": 1}), 422, "idempotency_key_reused")
    problem(await send(site, "k", PING, "/api/v1/queue/dead-letter/retry"), 422, "idempotency_key_reused")
    assert await count(site) == 1


@pytest.mark.every_store
async def test_many_at_once_make_one_job(site: Site) -> None:
    answers = await asyncio.gather(*(send(site, "k") for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    for answer in answers:
        if answer.status_code == 409:
            problem(answer, 409, "idempotency_in_progress")
            assert answer.headers["retry-after"]
    assert await count(site) == 1


async def test_a_reply_that_was_lost_makes_no_second_job(site: Site) -> None:
    """The job is committed, and the server never learns of it: the next try finds it."""
    site.app.store.lose_reply("enqueue")
    problem(await send(site, "k"), 503, "store_unavailable")
    again = await send(site, "k")
    assert again.status_code == 201
    assert again.json()["created"] is True
    assert await count(site) == 1
    assert (await send(site, "k")).json()["id"] == again.json()["id"]


async def test_an_answer_that_was_not_kept_makes_no_second_job(site: Site, clock: Any) -> None:
    site.app.store.refuse("update requests")
    first = await send(site, "k")
    assert first.status_code == 201
    problem(await send(site, "k"), 409, "idempotency_in_progress")
    clock.advance(site.app.settings.http_request_seconds * 2 + 1)
    again = await send(site, "k")
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert await count(site) == 1


async def test_a_request_that_failed_before_it_began_is_done_the_next_time(site: Site) -> None:
    site.app.store.refuse("enqueue")
    problem(await send(site, "k"), 503, "store_unavailable")
    assert (await send(site, "k")).status_code == 201
    assert await count(site) == 1


@pytest.mark.every_store
async def test_a_request_that_took_too_long_is_not_given_away_while_its_job_is_on_its_way(
    make_site: MakeSite, clock: Any
) -> None:
    site = await make_site(http_request_seconds=1.5)
    store = site.app.store
    with store.stalled("enqueue"):
        arrived = store.next("enqueue stalled")
        before = asyncio.create_task(site.app.enqueue("ping"))
        await arrived
        late = asyncio.create_task(send(site, "k"))  # its job waits for the next batch
        await store.next("insert requests")
        beside = [asyncio.create_task(site.app.enqueue("ping")) for _ in range(5)]
        problem(await late, 504, "timeout")
        problem(await send(site, "k"), 409, "idempotency_in_progress")
    await asyncio.gather(before, *beside)
    problem(await send(site, "k"), 409, "idempotency_in_progress")
    clock.advance(site.app.settings.http_request_seconds * 2 + 1)
    again = await send(site, "k")
    assert again.status_code == 201
    assert (await send(site, "k")).json() == again.json()
    assert await count(site) == 7


async def test_a_request_that_failed_is_given_to_the_next_try_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("rowlock.management.ManagementService.enqueue", fail)
        problem(await send(site, "k"), 500, "internal_error")
    assert (await send(site, "k")).status_code == 201


async def fail(*args: Any, **options: Any) -> None:
    raise ZeroDivisionError


@pytest.fixture
def broken_off(clock: Any) -> RequestAnswer:
    """What is set aside for a request that another try has begun."""
    return RequestAnswer(RequestState.BROKEN_OFF, uuid7(), clock.now())


@pytest.mark.every_store
@pytest.mark.parametrize("kind", ["ping", "once"])
async def test_two_tries_at_one_job_make_one_and_fail_nobody(site: Site, broken_off: RequestAnswer, kind: str) -> None:
    store, management = site.app.store, ManagementService(site.app)
    tasks: list[asyncio.Task[Any]] = []
    with store.stalled("enqueue"):
        for call in (site.app.enqueue("ping"), *(management.enqueue(kind, reserved=broken_off) for _ in range(2))):
            arrived = store.next("enqueue stalled")
            tasks.append(asyncio.create_task(call))
            await arrived
        beside = [asyncio.create_task(site.app.enqueue("ping")) for _ in range(5)]
    _, *tries = await asyncio.gather(*tasks)
    await asyncio.gather(*beside)
    assert [(told.id, told.created) for told in tries] == [(broken_off.job_id, True)] * 2
    assert await count(site) == 7


@pytest.mark.every_store
async def test_what_a_cancelled_try_has_left_behind_fails_nobody(site: Site, broken_off: RequestAnswer) -> None:
    store, management, enqueuer = site.app.store, ManagementService(site.app), site.app.engine.enqueuer
    with store.stalled("enqueue"):
        arrived = store.next("enqueue stalled")
        before = asyncio.create_task(site.app.enqueue("ping"))
        await arrived
        late = asyncio.create_task(management.enqueue("ping", reserved=replace(broken_off, state=RequestState.NEW)))
        while not enqueuer._pending:
            await asyncio.sleep(0)
        late.cancel()
        beside = [asyncio.create_task(site.app.enqueue("ping")) for _ in range(5)]
        arrived = store.next("enqueue stalled")
        again = asyncio.create_task(management.enqueue("ping", reserved=broken_off))
        await arrived
    await asyncio.gather(before, *beside)
    assert (await again).id == broken_off.job_id
    assert late.cancelled()
    assert await count(site) == 7


@pytest.mark.every_store
async def test_a_second_try_is_a_duplicate_as_the_first_would_be(site: Site, broken_off: RequestAnswer) -> None:
    management = ManagementService(site.app)
    holder = await management.enqueue("once", {"number": 1})
    with pytest.raises(DuplicateJob) as caught:
        await management.enqueue("once", {"number": 1}, reserved=broken_off)
    assert caught.value.existing_job_id == holder.id
    softly = Unique.forever(on_conflict=OnConflict.RETURN_EXISTING)
    told = await management.enqueue("once", {"number": 1}, unique=softly, reserved=broken_off)
    assert (told.id, told.created) == (holder.id, False)
    assert await count(site) == 1


@pytest.mark.every_store
async def test_a_second_try_is_refused_by_a_full_queue_as_the_first(
    make_site: MakeSite, broken_off: RequestAnswer
) -> None:
    site = await make_site(queue_size_max=1)
    await site.enqueue()
    with pytest.raises(QueueFull):
        await ManagementService(site.app).enqueue("ping", reserved=broken_off)
    assert await count(site) == 1


async def test_a_second_try_that_fails_otherwise_says_so(site: Site, broken_off: RequestAnswer) -> None:
    for error in (StoreError("it is odd"), StoreUnavailable("it is away")):
        site.app.store.refuse("enqueue", error=error)
        with pytest.raises(type(error)) as caught:
            await ManagementService(site.app).enqueue("ping", reserved=broken_off)
        assert caught.value is error
    assert await count(site) == 0


async def rows(site: Site, clock: Any) -> int:
    """How many requests are recorded; they are gone then."""
    clock.advance(site.app.settings.http_idempotency_hours * 3_600 + 1)
    return int(await prune_access(site.app.store, 90, 1_000))


@pytest.mark.parametrize(
    ("token", "path", "status", "code"),
    [
        ("viewer", ENQUEUE, 403, "forbidden"),
        ("operator", "/api/admin/queue/prune", 403, "forbidden"),
        ("acme", "/api/v1/queues/default/pause", 403, "company_scope"),
        ("admin", "/nope", 404, "not_found"),
        ("admin", f"{ENQUEUE}/", 404, "not_found"),
        ("admin", "/api/v1/queue/stats", 405, "method_not_allowed"),
        ("admin", "/healthz", 405, "method_not_allowed"),
    ],
)
@pytest.mark.parametrize("key", ["k", "x" * 201])
async def test_a_request_that_is_not_taken_is_not_recorded(
    site: Site, clock: Any, token: str, path: str, status: int, code: str, key: str
) -> None:
    await site.add_token("acme", Role.ADMIN, "acme")
    problem(await send(site, key, path=path, token=token), status, code)
    assert await rows(site, clock) == 0


async def test_a_request_that_is_taken_is_recorded(site: Site, clock: Any) -> None:
    await send(site, "k")
    await send(site, "l", {}, "/api/v1/queues/default/pause")
    assert await rows(site, clock) == 2


async def test_that_a_caller_may_not_is_not_kept(site: Site) -> None:
    await site.add_token("acme", Role.OPERATOR, "acme")
    for _ in range(2):
        answer = await send(site, "k", {"type": "ping", "companyId": "globex"}, token="acme")
        assert answer.status_code == 403
        assert "idempotency-replayed" not in answer.headers


async def test_a_job_that_is_not_there_is_kept(site: Site) -> None:
    path = "/api/v1/queue/00000000-0000-7000-8000-000000000000/retry"
    first, again = [await send(site, "k", {}, path) for _ in range(2)]
    problem(again, 404, "job_not_found")
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_key_is_forgotten_in_time(make_site: MakeSite, clock: Any) -> None:
    site = await make_site(http_idempotency_hours=1)
    await send(site, "k")
    clock.advance(3_601)
    assert (await send(site, "k")).status_code == 201
    assert await count(site) == 2


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_a_key_has_its_limits(site: Site, key: str) -> None:
    problem(await send(site, key), 422, "validation_failed")


async def test_bulk_work_is_not_done_twice(site: Site) -> None:
    await site.dead(2)
    path = "/api/v1/queue/dead-letter/retry"
    first = await send(site, "k", {"all": True}, path)
    assert first.json()["retried"] == 2
    await site.app.work(drain=True)
    assert (await send(site, "k", {"all": True}, path)).json() == first.json()
    assert (await site.get("/api/v1/queue/stats")).json()["counts"]["failed"] == 2

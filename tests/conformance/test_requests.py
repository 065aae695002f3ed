"""Requests: a request with an idempotency key runs once and always gets the same answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from conformance.stores import Rig
from rowlock.clock import FakeClock, StoreClock
from rowlock.control import requests, tokens
from rowlock.ids import uuid7
from rowlock.jobs.worker.maintenance import prune_access
from rowlock.storage.access import NewToken, RequestAnswer, RequestState, Role
from rowlock.storage.contract import Store

KEY, SAME, ANOTHER = "token/abc", "fingerprint", "another"
KEEP_SECONDS, STALE_SECONDS = 86_400.0, 60.0
FIRST, SECOND = uuid7(), uuid7()  # jobs
BODY = json.dumps({"id": FIRST, "name": "żółw"})


async def begin(store: Store, job_id: str = FIRST, fingerprint: str = SAME, key: str = KEY) -> RequestAnswer:
    return await requests.begin(store, key, fingerprint, job_id, keep_seconds=KEEP_SECONDS, stale_seconds=STALE_SECONDS)


async def test_a_key_that_nobody_used_is_new(store: Store, clock: FakeClock) -> None:
    assert await begin(store) == RequestAnswer(RequestState.NEW, FIRST, clock.now())


async def test_who_asks_while_it_is_done_is_told_so(store: Store, other: Store) -> None:
    begun_at = (await begin(store)).begun_at
    assert await begin(other, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST, begun_at)


async def test_who_asks_after_it_was_done_gets_its_answer(store: Store, other: Store, clock: FakeClock) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.end(store, KEY, begun_at, 201, BODY)
    for _ in range(3):
        assert await begin(other, SECOND) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 201, BODY)
        clock.advance(3_600)


@pytest.mark.parametrize("ended", [True, False])
async def test_a_key_used_for_another_request_tells_nothing_of_it(store: Store, clock: FakeClock, ended: bool) -> None:
    begun_at = (await begin(store)).begun_at
    if ended:
        await requests.end(store, KEY, begun_at, 201, BODY)
    clock.advance(STALE_SECONDS + 1)
    assert await begin(store, SECOND, ANOTHER) == RequestAnswer(RequestState.OTHER, FIRST, begun_at)


async def test_asking_for_another_request_leaves_the_first_as_it_is(store: Store) -> None:
    begun_at = (await begin(store)).begun_at
    await begin(store, SECOND, ANOTHER)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST, begun_at)
    await requests.end(store, KEY, begun_at, 201, BODY)
    await begin(store, SECOND, ANOTHER)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 201, BODY)


async def test_keys_are_apart(store: Store) -> None:
    await begin(store)
    second = await begin(store, SECOND, key="token/abd")
    assert second.state is RequestState.NEW
    assert (await begin(store, SECOND, key="TOKEN/ABC")).state is RequestState.NEW
    await requests.end(store, "token/abd", second.begun_at, 201, BODY)
    assert (await begin(store)).state is RequestState.RUNNING


@pytest.mark.parametrize("key", ["日本", "' OR 1=1 --", "%", "a b\tc", "k" * 1_000])
async def test_a_key_may_be_any_text(store: Store, key: str) -> None:
    begun = await begin(store, key=key)
    assert begun.state is RequestState.NEW
    await requests.end(store, key, begun.begun_at, 422, BODY)
    assert await begin(store, SECOND, key=key) == RequestAnswer(RequestState.DONE, FIRST, begun.begun_at, 422, BODY)


async def test_a_request_that_was_never_ended_is_broken_off_when_it_is_stale(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS)
    assert (await begin(store, SECOND)).state is RequestState.RUNNING
    clock.advance(0.001)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.BROKEN_OFF, FIRST, clock.now())


async def test_a_broken_off_request_is_one_callers(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS + 1)
    taken = await begin(store, SECOND)
    assert taken.state is RequestState.BROKEN_OFF
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST, taken.begun_at)


async def test_the_job_id_is_the_same_at_every_try(store: Store, clock: FakeClock) -> None:
    await begin(store)
    for _ in range(3):
        clock.advance(STALE_SECONDS + 1)
        begun_at = clock.now()
        assert await begin(store, uuid7()) == RequestAnswer(RequestState.BROKEN_OFF, FIRST, begun_at)
    await requests.end(store, KEY, begun_at, 201, BODY)
    assert (await begin(store, uuid7())).job_id == FIRST


async def test_a_try_that_took_it_over_ends_it(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS + 1)
    begun_at = (await begin(store, SECOND)).begun_at
    await requests.end(store, KEY, begun_at, 200, BODY)
    clock.advance(STALE_SECONDS + 1)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 200, BODY)


async def test_who_lost_it_does_not_end_it(store: Store, other: Store, clock: FakeClock) -> None:
    first = await begin(store)
    clock.advance(STALE_SECONDS + 1)
    second = await begin(other, SECOND)
    await requests.end(store, KEY, first.begun_at, 500, "{}")
    assert await begin(store) == RequestAnswer(RequestState.RUNNING, FIRST, second.begun_at)
    await requests.end(other, KEY, second.begun_at, 201, BODY)
    await requests.end(store, KEY, first.begun_at, 500, "{}")
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, second.begun_at, 201, BODY)


async def test_who_lost_it_does_not_release_it(store: Store, other: Store, clock: FakeClock) -> None:
    first = await begin(store)
    clock.advance(STALE_SECONDS + 1)
    second = await begin(other, SECOND)
    await requests.release(store, KEY, first.begun_at)
    assert await begin(store) == RequestAnswer(RequestState.RUNNING, FIRST, second.begun_at)


async def test_who_lost_it_when_it_was_new_again_leaves_it_alone(store: Store, clock: FakeClock) -> None:
    first = await begin(store)
    clock.advance(KEEP_SECONDS)
    second = await begin(store, SECOND, ANOTHER)
    await requests.release(store, KEY, first.begun_at)
    await requests.end(store, KEY, first.begun_at, 201, BODY)
    assert await begin(store, FIRST, ANOTHER) == RequestAnswer(RequestState.RUNNING, SECOND, second.begun_at)


@pytest.mark.parametrize("back_seconds", [0.0, 0.001, 3_600.0])
async def test_every_try_is_told_apart_though_the_clock_does_not_move_on(
    store: Store, clock: FakeClock, back_seconds: float
) -> None:
    tries = [(await begin(store)).begun_at]
    for _ in range(3):
        await requests.release(store, KEY, tries[-1])
        clock.advance(-back_seconds)
        taken = await begin(store)
        assert taken.state is RequestState.BROKEN_OFF
        await requests.end(store, KEY, tries[-1], 500, "{}")
        await requests.release(store, KEY, tries[-1])
        assert await begin(store) == RequestAnswer(RequestState.RUNNING, FIRST, taken.begun_at)
        tries.append(taken.begun_at)
    assert tries == sorted(set(tries))


async def test_the_stores_own_time_names_a_try_exactly(rig: Rig, store: Store) -> None:
    own = await rig.another(StoreClock())
    for number in range(20):
        key = str(number)
        begun = await begin(own, key=key)
        await requests.release(own, key, begun.begun_at)
        again = await begin(own, key=key)
        assert again.state is RequestState.BROKEN_OFF
        await requests.end(own, key, again.begun_at, 201, BODY)
        assert await begin(own, key=key) == RequestAnswer(RequestState.DONE, FIRST, again.begun_at, 201, BODY)


async def test_the_first_answer_stands(store: Store) -> None:
    """A late process must not change the answer that others got."""
    begun_at = (await begin(store)).begun_at
    await requests.end(store, KEY, begun_at, 201, BODY)
    await requests.end(store, KEY, begun_at, 500, "{}")
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 201, BODY)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("fingerprint", [SAME, ANOTHER])
async def test_after_its_time_a_key_is_new_again(store: Store, clock: FakeClock, ended: bool, fingerprint: str) -> None:
    begun_at = (await begin(store)).begun_at
    if ended:
        await requests.end(store, KEY, begun_at, 201, BODY)
    clock.advance(KEEP_SECONDS)
    assert await begin(store, SECOND, fingerprint) == RequestAnswer(RequestState.NEW, SECOND, clock.now())
    assert await begin(store, FIRST, fingerprint) == RequestAnswer(RequestState.RUNNING, SECOND, clock.now())


async def test_until_its_time_is_over_an_answer_is_kept(store: Store, clock: FakeClock) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.end(store, KEY, begun_at, 201, BODY)
    clock.advance(KEEP_SECONDS - 0.001)
    assert (await begin(store)).state is RequestState.DONE


async def test_a_request_taken_over_late_is_kept_as_long_as_any(store: Store, clock: FakeClock) -> None:
    """Otherwise the next caller would start it again while it still runs."""
    await begin(store)
    clock.advance(KEEP_SECONDS - 1)
    assert (await begin(store)).state is RequestState.BROKEN_OFF
    clock.advance(2)
    assert (await begin(store)).state is RequestState.RUNNING


async def test_a_released_request_is_the_next_callers_at_once(store: Store, other: Store) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.release(store, KEY, begun_at)
    taken = await begin(other, SECOND)
    assert (taken.state, taken.job_id) == (RequestState.BROKEN_OFF, FIRST)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST, taken.begun_at)


async def test_a_released_request_is_not_another_ones(store: Store) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.release(store, KEY, begun_at)
    assert (await begin(store, SECOND, ANOTHER)).state is RequestState.OTHER


async def test_a_released_request_may_still_be_ended(store: Store) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.release(store, KEY, begun_at)
    await requests.end(store, KEY, begun_at, 201, BODY)
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 201, BODY)


async def test_a_request_that_was_ended_is_not_released(store: Store) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.end(store, KEY, begun_at, 201, BODY)
    await requests.release(store, KEY, begun_at)
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, begun_at, 201, BODY)


async def test_a_key_that_is_not_known_is_left_alone(store: Store, clock: FakeClock) -> None:
    await requests.end(store, KEY, clock.now(), 201, BODY)
    await requests.release(store, KEY, clock.now())
    assert await begin(store) == RequestAnswer(RequestState.NEW, FIRST, clock.now())


@pytest.mark.parametrize("body", ["", "{}", "żółw " * 100_000])
async def test_an_answer_comes_back_as_it_was(store: Store, body: str) -> None:
    begun_at = (await begin(store)).begun_at
    await requests.end(store, KEY, begun_at, 200, body)
    assert (await begin(store)).body == body


async def test_requests_past_their_time_are_pruned(store: Store, clock: FakeClock) -> None:
    old = await begin(store, key="old")
    await requests.end(store, "old", old.begun_at, 201, BODY)
    await begin(store, key="old and never ended")
    clock.advance(KEEP_SECONDS / 2)
    await begin(store, key="young")
    clock.advance(KEEP_SECONDS / 2)
    assert await prune_access(store, 90, 10) == 2
    assert await prune_access(store, 90, 10) == 0
    assert (await begin(store, SECOND, key="young")).job_id == FIRST


async def test_no_more_is_pruned_than_asked(store: Store, clock: FakeClock) -> None:
    for number in range(3):
        await begin(store, key=str(number))
    await tokens.add(store, NewToken(uuid7(), "digest", "ended", Role.VIEWER, expires_in_seconds=1))
    clock.advance(days=100)
    assert [await prune_access(store, 90, 2) for _ in range(3)] == [2, 2, 0]


async def test_two_who_prune_at_once_count_each_request_once(store: Store, other: Store, clock: FakeClock) -> None:
    for number in range(30):
        await begin(store, key=str(number))
    clock.advance(days=2)
    removed = await asyncio.gather(*(prune_access(each, 90, 10) for each in (store, other, store, other)))
    removed.append(await prune_access(store, 90, 100))
    assert sum(removed) == 30

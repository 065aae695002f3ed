"""Requests: what was asked under a key is done once, and answered alike."""

from __future__ import annotations

import asyncio
import json

import pytest

from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.access import NewToken, RequestAnswer, RequestState, Role
from rowlock.storage.base import Store

KEY, SAME, ANOTHER = "token/abc", "fingerprint", "another"
KEEP_SECONDS, STALE_SECONDS = 86_400.0, 60.0
FIRST, SECOND = uuid7(), uuid7()  # jobs
BODY = json.dumps({"id": FIRST, "name": "żółw"})


async def begin(store: Store, job_id: str = FIRST, fingerprint: str = SAME, key: str = KEY) -> RequestAnswer:
    return await store.begin_request(key, fingerprint, job_id, keep_seconds=KEEP_SECONDS, stale_seconds=STALE_SECONDS)


async def test_a_key_that_nobody_used_is_new(store: Store) -> None:
    assert await begin(store) == RequestAnswer(RequestState.NEW, FIRST)


async def test_who_asks_while_it_is_done_is_told_so(store: Store, other: Store) -> None:
    await begin(store)
    assert await begin(other, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST)


async def test_who_asks_after_it_was_done_gets_its_answer(store: Store, other: Store, clock: FakeClock) -> None:
    await begin(store)
    await store.end_request(KEY, 201, BODY)
    for _ in range(3):
        assert await begin(other, SECOND) == RequestAnswer(RequestState.DONE, FIRST, 201, BODY)
        clock.advance(3_600)


@pytest.mark.parametrize("ended", [True, False])
async def test_a_key_used_for_another_request_tells_nothing_of_it(store: Store, clock: FakeClock, ended: bool) -> None:
    await begin(store)
    if ended:
        await store.end_request(KEY, 201, BODY)
    clock.advance(STALE_SECONDS + 1)
    assert await begin(store, SECOND, ANOTHER) == RequestAnswer(RequestState.OTHER, FIRST)


async def test_asking_for_another_request_leaves_the_first_as_it_is(store: Store) -> None:
    await begin(store)
    await begin(store, SECOND, ANOTHER)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST)
    await store.end_request(KEY, 201, BODY)
    await begin(store, SECOND, ANOTHER)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.DONE, FIRST, 201, BODY)


async def test_keys_are_apart(store: Store) -> None:
    await begin(store)
    assert (await begin(store, SECOND, key="token/abd")).state is RequestState.NEW
    assert (await begin(store, SECOND, key="TOKEN/ABC")).state is RequestState.NEW
    await store.end_request("token/abd", 201, BODY)
    assert (await begin(store)).state is RequestState.RUNNING


@pytest.mark.parametrize("key", ["日本", "' OR 1=1 --", "%", "a b\tc", "k" * 1_000])
async def test_a_key_may_be_any_text(store: Store, key: str) -> None:
    assert (await begin(store, key=key)).state is RequestState.NEW
    await store.end_request(key, 422, BODY)
    assert await begin(store, SECOND, key=key) == RequestAnswer(RequestState.DONE, FIRST, 422, BODY)


async def test_a_request_that_was_never_ended_is_broken_off_when_it_is_stale(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS)
    assert (await begin(store, SECOND)).state is RequestState.RUNNING
    clock.advance(0.001)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.BROKEN_OFF, FIRST)


async def test_a_broken_off_request_is_one_callers(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS + 1)
    assert (await begin(store, SECOND)).state is RequestState.BROKEN_OFF
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST)


async def test_the_job_id_is_the_same_at_every_try(store: Store, clock: FakeClock) -> None:
    await begin(store)
    for _ in range(3):
        clock.advance(STALE_SECONDS + 1)
        assert await begin(store, uuid7()) == RequestAnswer(RequestState.BROKEN_OFF, FIRST)
    await store.end_request(KEY, 201, BODY)
    assert (await begin(store, uuid7())).job_id == FIRST


async def test_a_try_that_took_it_over_ends_it(store: Store, clock: FakeClock) -> None:
    await begin(store)
    clock.advance(STALE_SECONDS + 1)
    await begin(store, SECOND)
    await store.end_request(KEY, 200, BODY)
    clock.advance(STALE_SECONDS + 1)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.DONE, FIRST, 200, BODY)


async def test_the_first_answer_stands(store: Store) -> None:
    """Whoever was too slow must not change what others were told."""
    await begin(store)
    await store.end_request(KEY, 201, BODY)
    await store.end_request(KEY, 500, "{}")
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, 201, BODY)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("fingerprint", [SAME, ANOTHER])
async def test_after_its_time_a_key_is_new_again(store: Store, clock: FakeClock, ended: bool, fingerprint: str) -> None:
    await begin(store)
    if ended:
        await store.end_request(KEY, 201, BODY)
    clock.advance(KEEP_SECONDS)
    assert await begin(store, SECOND, fingerprint) == RequestAnswer(RequestState.NEW, SECOND)
    assert await begin(store, FIRST, fingerprint) == RequestAnswer(RequestState.RUNNING, SECOND)


async def test_until_its_time_is_over_an_answer_is_kept(store: Store, clock: FakeClock) -> None:
    await begin(store)
    await store.end_request(KEY, 201, BODY)
    clock.advance(KEEP_SECONDS - 0.001)
    assert (await begin(store)).state is RequestState.DONE


async def test_a_request_taken_over_late_is_kept_as_long_as_any(store: Store, clock: FakeClock) -> None:
    """Else it would be new to the next while it is still being done."""
    await begin(store)
    clock.advance(KEEP_SECONDS - 1)
    assert (await begin(store)).state is RequestState.BROKEN_OFF
    clock.advance(2)
    assert (await begin(store)).state is RequestState.RUNNING


async def test_a_released_request_is_the_next_callers_at_once(store: Store, other: Store) -> None:
    await begin(store)
    await store.release_request(KEY)
    assert await begin(other, SECOND) == RequestAnswer(RequestState.BROKEN_OFF, FIRST)
    assert await begin(store, SECOND) == RequestAnswer(RequestState.RUNNING, FIRST)


async def test_a_released_request_is_not_another_ones(store: Store) -> None:
    await begin(store)
    await store.release_request(KEY)
    assert (await begin(store, SECOND, ANOTHER)).state is RequestState.OTHER


async def test_a_released_request_may_still_be_ended(store: Store) -> None:
    await begin(store)
    await store.release_request(KEY)
    await store.end_request(KEY, 201, BODY)
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, 201, BODY)


async def test_a_request_that_was_ended_is_not_released(store: Store) -> None:
    await begin(store)
    await store.end_request(KEY, 201, BODY)
    await store.release_request(KEY)
    assert await begin(store) == RequestAnswer(RequestState.DONE, FIRST, 201, BODY)


async def test_a_key_that_is_not_known_is_left_alone(store: Store) -> None:
    await store.end_request(KEY, 201, BODY)
    await store.release_request(KEY)
    assert await begin(store) == RequestAnswer(RequestState.NEW, FIRST)


@pytest.mark.parametrize("body", ["", "{}", "żółw " * 100_000])
async def test_an_answer_comes_back_as_it_was(store: Store, body: str) -> None:
    await begin(store)
    await store.end_request(KEY, 200, body)
    assert (await begin(store)).body == body


async def test_requests_past_their_time_are_pruned(store: Store, clock: FakeClock) -> None:
    await begin(store, key="old")
    await store.end_request("old", 201, BODY)
    await begin(store, key="old and never ended")
    clock.advance(KEEP_SECONDS / 2)
    await begin(store, key="young")
    clock.advance(KEEP_SECONDS / 2)
    assert await store.prune_access(90, 10) == 2
    assert await store.prune_access(90, 10) == 0
    assert (await begin(store, SECOND, key="young")).job_id == FIRST


async def test_no_more_is_pruned_than_asked(store: Store, clock: FakeClock) -> None:
    for number in range(3):
        await begin(store, key=str(number))
    await store.add_token(NewToken(uuid7(), "digest", "ended", Role.VIEWER, expires_in_seconds=1))
    clock.advance(days=100)
    assert [await store.prune_access(90, 2) for _ in range(3)] == [2, 2, 0]


async def test_two_who_prune_at_once_count_each_request_once(store: Store, other: Store, clock: FakeClock) -> None:
    for number in range(30):
        await begin(store, key=str(number))
    clock.advance(days=2)
    removed = await asyncio.gather(*(each.prune_access(90, 10) for each in (store, other, store, other)))
    removed.append(await store.prune_access(90, 100))
    assert sum(removed) == 30

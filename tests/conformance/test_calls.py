"""Calls of other services: never more than the limit in any window, whenever a call arrives between permit and end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conformance.builders import near
from conformance.stores import Rig
from rowlock.clock import FakeClock, StoreClock
from rowlock.ids import uuid7
from rowlock.storage.calls import CallBudget, CallLimit
from rowlock.storage.contract import Store

TEN_SECONDS = CallLimit("api:10s", 3, 10)
SEARCH = CallLimit("api:search", 1, 1)
DAY = CallLimit("api:day", 5, 86_400)
HOLD_SECONDS = 30
SOON = 0.002  # seconds: the precision of stores


async def take(store: Store, *limits: CallLimit) -> str:
    """Take a call; fails unless it is permitted."""
    permit = uuid7()
    assert await store.take_call(permit, limits, HOLD_SECONDS) == 0.0
    return permit


async def wait(store: Store, *limits: CallLimit) -> float:
    """Return the wait of a call; fails if it is permitted."""
    seconds = await store.take_call(uuid7(), limits, HOLD_SECONDS)
    assert seconds > 0
    return seconds


async def take_and_end(store: Store, *limits: CallLimit) -> None:
    await store.end_call(await take(store, *limits))


async def in_use(store: Store, *limits: CallLimit) -> list[int]:
    return [budget.in_use for budget in await store.call_budget([limit.key for limit in limits])]


async def test_no_more_calls_begin_than_the_limit_allows(store: Store) -> None:
    for _ in range(3):
        await take(store, TEN_SECONDS)
    await wait(store, TEN_SECONDS)
    assert await in_use(store, TEN_SECONDS) == [3]


async def test_a_call_counts_from_its_beginning_until_its_window_after_its_end(store: Store, clock: FakeClock) -> None:
    permit = await take(store, SEARCH)
    clock.advance(20)
    await wait(store, SEARCH)  # the call may arrive just now
    await store.end_call(permit)
    await wait(store, SEARCH)
    clock.advance(1 - SOON)
    assert await wait(store, SEARCH) <= 2 * SOON
    clock.advance(2 * SOON)
    await take(store, SEARCH)


async def test_the_wait_is_until_the_first_that_matters_is_free(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        await take_and_end(store, TEN_SECONDS)
        clock.advance(2)
    assert await wait(store, TEN_SECONDS) == pytest.approx(4, abs=SOON)
    clock.advance(await wait(store, TEN_SECONDS))
    await take(store, TEN_SECONDS)
    assert await wait(store, TEN_SECONDS) == pytest.approx(2, abs=SOON)


async def test_one_waits_for_as_many_as_are_too_many(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        await take_and_end(store, TEN_SECONDS)
        clock.advance(1)
    fewer = CallLimit(TEN_SECONDS.key, 1, 10)  # the limit has been lowered
    assert await wait(store, fewer) == pytest.approx(9, abs=SOON)


async def test_who_waits_for_running_calls_asks_again_as_if_they_ended_now(store: Store, clock: FakeClock) -> None:
    permit = await take(store, SEARCH)
    assert await wait(store, SEARCH) == pytest.approx(1, abs=SOON)
    clock.advance(1)
    await store.end_call(permit)
    assert await wait(store, SEARCH) == pytest.approx(1, abs=SOON)


async def test_a_call_whose_holder_died_counts_as_if_it_had_ended_after_its_hold(
    store: Store, clock: FakeClock
) -> None:
    await take(store, SEARCH)
    clock.advance(HOLD_SECONDS + 1 - SOON)
    assert await wait(store, SEARCH) <= 2 * SOON
    clock.advance(2 * SOON)
    await take(store, SEARCH)


async def test_a_call_that_was_not_made_does_not_count(store: Store) -> None:
    permit = await take(store, SEARCH, DAY)
    await store.end_call(permit, made=False)
    assert await in_use(store, SEARCH, DAY) == [0, 0]
    await take(store, SEARCH, DAY)


async def test_only_the_first_end_of_a_call_matters(store: Store, clock: FakeClock) -> None:
    permit = await take(store, SEARCH, DAY)
    await store.end_call(permit)
    clock.advance(0.5)
    await store.end_call(permit)
    await store.end_call(permit, made=False)
    assert await in_use(store, SEARCH, DAY) == [1, 1]
    clock.advance(0.5 + SOON)
    await take(store, SEARCH, DAY)


async def test_an_end_that_belongs_to_nothing_is_left_alone(store: Store) -> None:
    await store.end_call(uuid7())
    await store.end_call("not a permit", made=False)
    await take(store, SEARCH)


async def test_all_limits_of_a_call_are_taken_or_none(store: Store, clock: FakeClock) -> None:
    await take_and_end(store, SEARCH, DAY, TEN_SECONDS)
    await wait(store, TEN_SECONDS, SEARCH, DAY)
    assert await in_use(store, TEN_SECONDS, SEARCH, DAY) == [1, 1, 1]
    await take(store, TEN_SECONDS, DAY)
    assert await in_use(store, TEN_SECONDS, SEARCH, DAY) == [2, 1, 2]


async def test_one_waits_for_the_slowest_of_its_limits(store: Store) -> None:
    for _ in range(3):
        await take_and_end(store, TEN_SECONDS)
    await take_and_end(store, SEARCH)
    assert await wait(store, SEARCH, TEN_SECONDS) == pytest.approx(10, abs=SOON)


async def test_keys_do_not_count_for_each_other(store: Store) -> None:
    for part in range(3):
        await take(store, CallLimit(f"api:{part}", 1, 60))


async def test_without_limits_every_call_may_be_made(store: Store) -> None:
    permit = await take(store)
    await store.end_call(permit)


async def test_a_call_asked_for_again_is_the_same_call_held_anew(store: Store, clock: FakeClock) -> None:
    permit = await take(store, SEARCH, DAY)
    clock.advance(20)
    assert await store.take_call(permit, [SEARCH, DAY], HOLD_SECONDS) == 0.0
    assert await in_use(store, SEARCH, DAY) == [1, 1]
    clock.advance(20)
    await wait(store, SEARCH)
    await store.end_call(permit)
    clock.advance(1 + SOON)
    await take(store, SEARCH)


async def test_a_call_that_has_ended_is_not_taken_again(store: Store, clock: FakeClock) -> None:
    permit = await take(store, TEN_SECONDS)
    await store.end_call(permit)
    with pytest.raises(ValueError, match="has ended"):
        await store.take_call(permit, [TEN_SECONDS], HOLD_SECONDS)
    assert await in_use(store, TEN_SECONDS) == [1]


# -- long windows: kept in sums ------------------------------------------------------------------------


async def test_a_long_window_holds_to_its_end_and_hardly_longer(store: Store, clock: FakeClock) -> None:
    for _ in range(5):
        await take_and_end(store, DAY)
        clock.advance(minutes=1)
    first = await wait(store, DAY)
    assert 86_400 - 300 <= first <= 86_400 - 300 + 864 + SOON
    clock.advance(first - SOON)
    await wait(store, DAY)
    clock.advance(2 * SOON)
    await take(store, DAY)


async def test_calls_of_a_long_window_are_kept_in_sums(store: Store, clock: FakeClock) -> None:
    wide = CallLimit("api:day", 1_000, 86_400)
    clock.advance(5)  # into the middle of a step
    for _ in range(50):
        await take_and_end(store, wide)
        clock.advance(1)
    assert await in_use(store, wide) == [50]
    clock.advance(hours=24, seconds=-50)
    assert await in_use(store, wide) == [50]  # the first ended 24 hours ago: it counts until its step is over
    clock.advance(2 * 864)
    assert await in_use(store, wide) == [0]
    assert await store.prune_calls(1, 100) <= 3


async def test_a_call_of_a_long_window_whose_holder_died_counts_too(store: Store, clock: FakeClock) -> None:
    one = CallLimit("api:day", 1, 86_400)
    await take(store, one)
    clock.advance(86_400)
    await wait(store, one)
    clock.advance(HOLD_SECONDS + SOON)
    await take(store, one)


async def test_a_long_window_waits_for_as_many_as_are_too_many(store: Store, clock: FakeClock) -> None:
    for _ in range(5):
        await take_and_end(store, DAY)
        clock.advance(hours=1)
    fewer = CallLimit(DAY.key, 2, 86_400)
    seconds = await wait(store, fewer)  # until the fourth call leaves the window
    assert 22 * 3_600 - SOON <= seconds <= 22 * 3_600 + 864 + SOON


async def test_a_large_count_is_kept_in_sums(store: Store, clock: FakeClock) -> None:
    many = CallLimit("api", 1_001, 10)
    permit = await take(store, many)
    await store.end_call(permit)
    clock.advance(10 - SOON)
    assert await in_use(store, many) == [1]
    clock.advance(0.1 + 2 * SOON)
    assert await in_use(store, many) == [0]


async def test_a_limit_whose_window_changed_goes_on_counting(store: Store, clock: FakeClock) -> None:
    await take_and_end(store, CallLimit("api", 2, 60))
    await take_and_end(store, CallLimit("api", 2, 3_600))
    await wait(store, CallLimit("api", 2, 1))
    clock.advance(61)
    await take(store, CallLimit("api", 2, 1))


# -- rests -----------------------------------------------------------------------------------------------


async def test_no_call_of_a_key_that_rests_begins(store: Store, other: Store, clock: FakeClock) -> None:
    await store.rest_calls(SEARCH.key, 5)
    assert await wait(other, SEARCH, TEN_SECONDS) == pytest.approx(5, abs=SOON)
    assert await in_use(store, TEN_SECONDS) == [0]
    await take(other, TEN_SECONDS)
    clock.advance(5)
    await take(other, SEARCH)


async def test_a_longer_rest_stays_and_a_shorter_one_is_made_longer(store: Store) -> None:
    await store.rest_calls(SEARCH.key, 5)
    await store.rest_calls(SEARCH.key, 2)
    assert await wait(store, SEARCH) == pytest.approx(5, abs=SOON)
    await store.rest_calls(SEARCH.key, 9)
    assert await wait(store, SEARCH) == pytest.approx(9, abs=SOON)


async def test_a_rest_lasts_for_a_year_at_most(store: Store, clock: FakeClock) -> None:
    await store.rest_calls(SEARCH.key, 1e30)
    (budget,) = await store.call_budget([SEARCH.key])
    assert near(budget.rests_until, clock.now() + timedelta(days=366))


async def test_a_key_in_use_rests_too(store: Store, clock: FakeClock) -> None:
    permit = await take(store, SEARCH)
    await store.rest_calls(SEARCH.key, 60)
    await store.end_call(permit)
    assert await wait(store, SEARCH) == pytest.approx(60, abs=SOON)
    clock.advance(60)
    await take(store, SEARCH)


async def test_the_wait_is_the_longer_of_the_rest_and_the_limit(store: Store) -> None:
    for _ in range(3):
        await take_and_end(store, TEN_SECONDS)
    await store.rest_calls(TEN_SECONDS.key, 5)
    assert await wait(store, TEN_SECONDS) == pytest.approx(10, abs=SOON)


# -- budgets, refusals and pruning -------------------------------------------------------------------------


async def test_the_budget_tells_how_each_key_stands(store: Store, clock: FakeClock) -> None:
    await take(store, DAY)
    await take_and_end(store, DAY)
    await store.rest_calls(SEARCH.key, 60)
    search, unknown, day = await store.call_budget([SEARCH.key, "unknown", DAY.key])
    assert (unknown, day) == (CallBudget("unknown", 0, None), CallBudget(DAY.key, 2, None))
    assert (search.key, search.in_use) == (SEARCH.key, 0)
    clock.advance(60)
    assert near(search.rests_until, clock.now())
    assert await store.call_budget([SEARCH.key]) == [CallBudget(SEARCH.key, 0, None)]


async def test_the_budget_of_nothing_is_empty(store: Store) -> None:
    assert await store.call_budget([]) == []


@pytest.mark.parametrize(
    "limits",
    [
        [CallLimit("", 1, 1)],
        [CallLimit("k" * 201, 1, 1)],
        [CallLimit("a\0b", 1, 1)],
        [CallLimit("api", 0, 1)],
        [CallLimit("api", 1, 0)],
        [CallLimit("api", 1, float("nan"))],
        [CallLimit("api", 1, float("inf"))],
        [CallLimit("api", 1, 1e9)],
        [CallLimit("api", 1, 1), CallLimit("api", 5, 10)],
    ],
)
async def test_a_limit_that_cannot_be_kept_is_refused(store: Store, limits: list[CallLimit]) -> None:
    with pytest.raises(ValueError):
        await store.take_call(uuid7(), limits, HOLD_SECONDS)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(store: Store, seconds: float) -> None:
    with pytest.raises(ValueError):
        await store.rest_calls("api", seconds)
    with pytest.raises(ValueError):
        await store.take_call(uuid7(), [SEARCH], seconds)
    await take(store, SEARCH)


async def test_calls_that_do_not_count_any_more_are_pruned(store: Store, clock: FakeClock) -> None:
    for part in range(5):
        await take_and_end(store, CallLimit(f"api:{part}", 1, 1))
    await take_and_end(store, DAY)
    running = await take(store, TEN_SECONDS)
    clock.advance(2)
    assert await store.prune_calls(1, 3) == 3
    assert await store.prune_calls(1, 3) == 2
    assert await store.prune_calls(1, 3) == 0
    assert await in_use(store, DAY, TEN_SECONDS) == [1, 1]
    await store.end_call(running)
    clock.advance(days=2)
    assert await store.prune_calls(1, 10) == 2


async def test_a_key_in_use_does_not_gather_calls_that_are_over(store: Store, clock: FakeClock) -> None:
    for _ in range(20):
        await take_and_end(store, SEARCH)
        clock.advance(1 + SOON)
    assert await store.prune_calls(1, 100) <= 1


async def test_without_a_fake_the_stores_own_clock_counts(rig: Rig, store: Store) -> None:
    real = await rig.another(StoreClock())
    await take_and_end(real, TEN_SECONDS)
    await real.rest_calls(SEARCH.key, 60)
    assert 59 < await wait(real, SEARCH) <= 60
    assert await in_use(real, TEN_SECONDS) == [1]

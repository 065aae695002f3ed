"""Races for calls and subjects: several processes at once get one consistent answer."""

from __future__ import annotations

import asyncio
from collections import Counter

from conformance.builders import flat
from rowlock.clock import FakeClock
from rowlock.ids import uuid7, uuid7s
from rowlock.storage.calls import CallLimit
from rowlock.storage.contract import Store

ROUNDS = 5
SHORT = CallLimit("short", 5, 10)
DAY = CallLimit("day", 1_000, 86_400)


async def allowed(stores: list[Store], number: int, *limits: CallLimit) -> list[str]:
    """Ask for `number` calls at once. Returns the permitted ones."""
    permits = uuid7s(number)
    answers = await asyncio.gather(
        *(stores[place % len(stores)].take_call(permit, limits, 30) for place, permit in enumerate(permits))
    )
    return [permit for permit, wait in zip(permits, answers, strict=True) if wait == 0.0]


async def in_use(store: Store, limit: CallLimit) -> int:
    (budget,) = await store.call_budget([limit.key])
    return budget.in_use


async def test_a_limit_holds_however_many_ask_at_once(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(ROUNDS):
        taken = await allowed([store, other], 16, SHORT, DAY)
        assert len(taken) == 5
        await asyncio.gather(*(store.end_call(permit) for permit in taken))
        assert await allowed([store, other], 4, SHORT) == []
        clock.advance(10.01)
    assert await in_use(store, DAY) == 5 * ROUNDS


async def test_ends_and_takes_at_once_are_counted_once_each(store: Store, other: Store, clock: FakeClock) -> None:
    running: list[str] = []
    for _ in range(ROUNDS * 2):
        ended, running = running, []
        ends = asyncio.gather(*((store, other)[place % 2].end_call(permit) for place, permit in enumerate(ended)))
        running, _ = await asyncio.gather(allowed([other, store], 8, DAY), ends)
    assert await in_use(store, DAY) == 8 * 2 * ROUNDS


async def test_calls_with_their_limits_in_any_order_do_not_deadlock(store: Store, other: Store) -> None:
    limits = [CallLimit(name, 1_000, seconds) for name, seconds in (("a", 1), ("b", 100), ("c", 1), ("d", 3_600))]
    orders = [limits, limits[::-1], limits[2:] + limits[:2], limits[:3], limits[1:], [limits[3], limits[0]]]
    async with asyncio.timeout(60):
        for _ in range(ROUNDS):
            taken = flat(
                await asyncio.gather(*(allowed([store, other], 2, *order) for order in orders for _ in range(2)))
            )
            assert len(taken) == 24
            await asyncio.gather(*((store, other)[place % 2].end_call(permit) for place, permit in enumerate(taken)))
    assert [await in_use(store, limit) for limit in limits] == [20 * ROUNDS, 20 * ROUNDS, 20 * ROUNDS, 20 * ROUNDS]


async def test_one_call_asked_for_eight_times_at_once_counts_once(store: Store, other: Store) -> None:
    for _ in range(ROUNDS):
        permit = uuid7()
        answers = await asyncio.gather(
            *((store, other)[place % 2].take_call(permit, [DAY, CallLimit("wide", 100, 10)], 30) for place in range(8))
        )
        assert answers == [0.0] * 8
    assert await in_use(store, DAY) == ROUNDS


async def test_one_call_ended_eight_times_at_once_ends_once(store: Store, other: Store) -> None:
    for number in range(ROUNDS):
        (permit,) = await allowed([store], 1, DAY)
        await asyncio.gather(*((store, other)[place % 2].end_call(permit) for place in range(8)))
        assert await in_use(store, DAY) == number + 1


async def test_a_rest_and_calls_agree_about_who_came_first(store: Store, other: Store, clock: FakeClock) -> None:
    for _ in range(ROUNDS):
        await asyncio.gather(
            allowed([store, other], 4, SHORT), *(each.rest_calls(SHORT.key, 20) for each in (store, other, store))
        )
        assert await allowed([store, other], 4, SHORT) == []
        clock.advance(60)
        assert await in_use(store, SHORT) == 0


async def test_a_subject_asked_for_by_eight_at_once_is_held_by_one(store: Store, other: Store) -> None:
    keys = [f"k{number}" for number in range(40)]
    for number in range(ROUNDS):
        orders = [keys, keys[::-1], keys[20:] + keys[:20], keys[::2] + keys[1::2]] * 2
        holders = [f"{number} {place}" for place in range(8)]
        answers = await asyncio.gather(
            *(
                (store, other)[place % 2].hold_subjects("contact", order, holder, 60)
                for place, (order, holder) in enumerate(zip(orders, holders, strict=True))
            )
        )
        assert Counter(flat(answers)) == Counter(keys)
        marked = await asyncio.gather(
            *(
                (store, other)[place % 2].mark_subjects("contact", holder, {key: {"p": str(number)} for key in answer})
                for place, (answer, holder) in enumerate(zip(answers, holders, strict=True))
            )
        )
        assert sorted(flat(marked)) == sorted(keys)


async def test_holds_marks_and_releases_in_different_orders_do_not_deadlock(store: Store, other: Store) -> None:
    keys = [f"k{number}" for number in range(50)]
    async with asyncio.timeout(60):
        for number in range(ROUNDS):
            await store.hold_subjects("contact", keys, "ann", 60)
            told = {key: {"p": f"{number}", "q": "0"} for key in keys[:25][::-1]}
            marked, *_ = await asyncio.gather(
                store.mark_subjects("contact", "ann", told),
                other.hold_subjects("contact", keys[::-1], "ben", 60),
                store.free_subjects("contact", "ann", keys[25:][::-1]),
                other.hold_subjects("contact", keys[::2] + keys[1::2], "cat", 60),
                other.free_subjects("contact", "ann", keys[25:]),
                store.hold_subjects("contact", keys, "dan", 60),
            )
            assert marked == list(told)
            for holder in ("ben", "cat", "dan"):
                await store.free_subjects("contact", holder, keys)
    found = await store.hold_subjects("contact", keys, "eve", 60)
    assert {key: marks.get("p") for key, marks in found.items()} == {
        key: str(ROUNDS - 1) if key in keys[:25] else None for key in keys
    }


async def test_two_prunes_at_once_count_each_call_and_subject_once(
    store: Store, other: Store, clock: FakeClock
) -> None:
    for number in range(20):
        await allowed([store], 1, CallLimit(f"k{number}", 1, 1))
    await store.hold_subjects("contact", [f"k{number}" for number in range(20)], "ann", 1)
    clock.advance(days=3)
    removed = await asyncio.gather(*(each.prune_calls(1, 5) for each in (store, other, store, other)))
    removed.append(await store.prune_calls(1, 100))
    assert sum(removed) == 40

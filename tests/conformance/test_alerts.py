"""Alerts, notifications of dead letters, and measures: raised once, summed over all processes."""

from __future__ import annotations

import asyncio

import pytest

from conformance.builders import near, put_and_fail, put_and_take
from rowlock.clock import FakeClock
from rowlock.control import alerts
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome
from rowlock.storage.reliability import DeadLetters, Measure

# -- alerts ------------------------------------------------------------------------------------------


async def test_an_alert_is_raised_once(store: Store, other: Store) -> None:
    assert await alerts.start(store, "spike:mail")
    assert not await alerts.start(store, "spike:mail")
    assert not await alerts.start(other, "spike:mail")


async def test_of_many_who_see_the_spike_one_raises_the_alert(store: Store, other: Store) -> None:
    for number in range(5):
        raised = await asyncio.gather(*(alerts.start((store, other)[n % 2], f"spike:{number}") for n in range(8)))
        assert sum(raised) == 1


async def test_alerts_have_nothing_to_do_with_each_other(store: Store) -> None:
    assert await alerts.start(store, "spike:mail")
    assert await alerts.start(store, "spike:sync")
    await alerts.clear(store, "spike:mail")
    assert not await alerts.start(store, "spike:sync")


async def test_an_alert_that_is_over_says_since_when_it_was_raised(store: Store, clock: FakeClock) -> None:
    since = clock.now()
    await alerts.start(store, "spike:mail")
    clock.advance(60)
    await alerts.start(store, "spike:mail")
    clock.advance(60)
    assert near(await alerts.clear(store, "spike:mail"), since)


async def test_an_alert_is_over_once(store: Store, other: Store) -> None:
    assert await alerts.clear(store, "spike:mail") is None
    await alerts.start(store, "spike:mail")
    cleared = await asyncio.gather(*(alerts.clear((store, other)[n % 2], "spike:mail") for n in range(8)))
    assert sum(since is not None for since in cleared) == 1


async def test_an_alert_that_is_over_may_be_raised_again(store: Store, clock: FakeClock) -> None:
    await alerts.start(store, "spike:mail")
    await alerts.clear(store, "spike:mail")
    clock.advance(60)
    assert await alerts.start(store, "spike:mail")
    assert near(await alerts.clear(store, "spike:mail"), clock.now())


# -- dead letters ------------------------------------------------------------------------------------


async def test_a_death_waits_to_be_said_until_it_is(store: Store, other: Store) -> None:
    assert not await store.has_unnotified()
    await put_and_fail(store)
    assert await other.has_unnotified()
    assert len(await other.assign_notification(uuid7(), 10)) == 1
    assert not await store.has_unnotified()


async def test_a_failure_that_is_not_final_is_no_death(store: Store) -> None:
    await put_and_fail(store, Outcome.RETRY, delay_seconds=60)
    assert not await store.has_unnotified()
    assert await store.assign_notification(uuid7(), 10) == []


@pytest.mark.parametrize(("spent", "died"), [(1, True), (2, False)])
async def test_a_job_whose_last_attempt_was_lost_has_died(
    store: Store, clock: FakeClock, spent: int, died: bool
) -> None:
    await put_and_take(store, max_attempts=spent)
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert await store.has_unnotified() is died


async def test_a_notice_says_what_died_where_when_and_why(store: Store, clock: FakeClock) -> None:
    first = await put_and_fail(store, error="first", type="report", queue="q", max_attempts=3)
    since = clock.now()
    clock.advance(60)
    last = await put_and_fail(store, error="last", type="report", queue="q", max_attempts=3)
    assert await store.assign_notification(uuid7(), 10) == [
        DeadLetters("report", "q", 2, since, clock.now(), 1, (last.job_id, first.job_id), "last")
    ]


async def test_deaths_are_grouped_by_job_name_and_queue_most_first(store: Store) -> None:
    kinds = [("mail", "a"), ("report", "a"), ("mail", "b"), ("mail", "a"), ("report", "a"), ("mail", "a")]
    for name, queue in kinds:
        await put_and_fail(store, type=name, queue=queue)
    said = [(group.job_name, group.queue_name, group.count) for group in await store.assign_notification(uuid7(), 100)]
    assert said == [("mail", "a", 3), ("report", "a", 2), ("mail", "b", 1)]


async def test_ten_deaths_of_one_kind_are_one_group_that_names_the_last_three(store: Store, clock: FakeClock) -> None:
    jobs = []
    for number in range(10):
        jobs.append((await put_and_fail(store, error=f"error {number}")).job_id)
        clock.advance(1)
    (group,) = await store.assign_notification(uuid7(), 100)
    assert (group.count, group.job_ids, group.reason) == (10, tuple(jobs[:-4:-1]), "error 9")


async def test_a_group_tells_the_most_attempts_that_one_of_its_jobs_had(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, max_attempts=2)
    for _ in range(2):
        clock.advance(31)
        await store.rescue(10, {}, str)
        await store.claim("default", uuid7(), 1)
    await put_and_fail(store)
    (group,) = await store.assign_notification(uuid7(), 10)
    assert (group.count, group.attempts) == (2, 2)


async def test_a_notice_that_is_sent_again_says_the_same(store: Store, other: Store) -> None:
    notice = uuid7()
    for name in ("mail", "report", "mail"):
        await put_and_fail(store, type=name)
    said = await store.assign_notification(notice, 10)
    assert await other.assign_notification(notice, 10) == said
    assert await store.assign_notification(notice, 0) == said


async def test_a_death_is_said_by_one_notice(store: Store) -> None:
    first = await put_and_fail(store)
    notice = uuid7()
    await store.assign_notification(notice, 10)
    assert await store.assign_notification(uuid7(), 10) == []
    second = await put_and_fail(store)
    (later,) = await store.assign_notification(uuid7(), 10)
    assert later.job_ids == (second.job_id,)
    (again,) = await store.assign_notification(notice, 10)
    assert again.job_ids == (first.job_id,)


async def test_a_notice_says_no_more_deaths_than_asked_the_oldest_first(store: Store, clock: FakeClock) -> None:
    jobs = []
    for _ in range(5):
        jobs.append((await put_and_fail(store)).job_id)
        clock.advance(1)
    rounds = [await store.assign_notification(uuid7(), 2) for _ in range(4)]
    assert [[group.job_ids for group in said] for said in rounds] == [
        [(jobs[1], jobs[0])],
        [(jobs[3], jobs[2])],
        [(jobs[4],)],
        [],
    ]


async def test_two_notices_at_once_never_say_the_same_death(store: Store, other: Store) -> None:
    jobs = [(await put_and_fail(store, type=f"t{n}")).job_id for n in range(20)]
    said = await asyncio.gather(*((store, other)[n % 2].assign_notification(uuid7(), 8) for n in range(4)))
    named = [job_id for groups in said for group in groups for job_id in group.job_ids]
    assert len(named) == len(set(named))
    left = [job_id for group in await store.assign_notification(uuid7(), 100) for job_id in group.job_ids]
    assert sorted(named + left) == sorted(jobs)


# -- measures ----------------------------------------------------------------------------------------


async def test_measures_add_up_over_workers(store: Store, other: Store) -> None:
    lost, skipped = Measure("lease_lost"), Measure("lock", '{"outcome":"skipped"}')
    assert await store.measures() == {}
    await store.add_measures({lost: 2, skipped: 0.5})
    await other.add_measures({lost: 3})
    assert await store.measures() == {lost: 5.0, skipped: 0.5}
    assert await other.measures() == await store.measures()


async def test_labels_make_another_measure(store: Store) -> None:
    measures = {Measure("run", '{"queue":"a"}'): 1.0, Measure("run", '{"queue":"b"}'): 2.0, Measure("run"): 4.0}
    await store.add_measures(measures)
    assert await store.measures() == measures


async def test_adding_no_measures_does_nothing(store: Store) -> None:
    await store.add_measures({})
    assert await store.measures() == {}


async def test_measures_added_at_once_in_any_order_all_count(store: Store, other: Store) -> None:
    names = [Measure(f"m{number}") for number in range(20)]
    orders = [names, names[::-1], names[10:] + names[:10], names[::2] + names[1::2]]
    await asyncio.gather(
        *(
            (store, other)[n % 2].add_measures(dict.fromkeys(order, 1.0))
            for n, order in enumerate(order for order in orders for _ in range(5))
        )
    )
    assert await store.measures() == dict.fromkeys(names, 20.0)

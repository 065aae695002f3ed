"""Counts: read from counters without scanning jobs, and always exact."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from conformance.builders import (
    ANN,
    BEN,
    EVERYTHING,
    counted,
    end,
    forever,
    kept,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    put_many,
    settle,
    while_active,
)
from conformance.callers import Caller
from rowlock.clock import FakeClock
from rowlock.errors import DuplicateJob
from rowlock.ids import uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.records import (
    Claimed,
    JobFilter,
    JobRecord,
    KeepPolicy,
    Limit,
    OnConflict,
    Outcome,
    Settlement,
    Status,
)
from rowlock.storage.reliability import Activity

LATE = 31
HOUR_SECONDS = 3_600
DAY_SECONDS = 24 * HOUR_SECONDS
Change = Callable[[Store, FakeClock], Awaitable[Any]]


class Interrupted(Exception):
    """Any exception of a handler."""


# -- the real numbers, from every job -----------------------------------------------------------------


async def every_job(store: Store) -> list[JobRecord]:
    found: list[JobRecord] = []
    cursor = None
    while True:
        page = await store.page(EVERYTHING, 500, cursor)
        found += page.jobs
        if (cursor := page.next_cursor) is None:
            return found


async def agree(store: Store, clock: FakeClock) -> None:
    """Assert that all counters match the stored jobs."""
    jobs = await every_job(store)
    statuses = Counter(job.status for job in jobs)
    assert await store.counts() == {status: statuses[status] for status in Status}
    await _agree_by_type(store, jobs)
    await _agree_by_queue(store, clock, jobs)


async def _agree_by_type(store: Store, jobs: list[JobRecord]) -> None:
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for job in jobs:
        place = [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED].index(job.status) + 1 if job.status.final else 0
        expected[job.queue, job.type][place] += 1
    totals = await store.totals()
    assert [total[:2] for total in totals] == sorted({total[:2] for total in totals})
    assert {total[:2]: [*total[2:]] for total in totals if any(total[2:])} == expected


async def _agree_by_queue(store: Store, clock: FakeClock, jobs: list[JobRecord]) -> None:
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for job in jobs:
        if not job.status.final:
            place = 2 if job.status is Status.PROCESSING else int(job.available_at > clock.now())
            expected[job.queue][place] += 1
    assert {one.name: [one.ready, one.delayed, one.processing] for one in await store.queues()} == expected


async def compact_all(store: Store, limit: int = 1_000) -> None:
    while await store.compact(limit):
        pass


# -- what changes them --------------------------------------------------------------------------------


async def nothing(store: Store, clock: FakeClock) -> None:
    """Do nothing."""


async def enqueue_one(store: Store, clock: FakeClock) -> None:
    await put(store)


async def enqueue_many(store: Store, clock: FakeClock) -> None:
    await put_many(store, 50)


async def enqueue_many_delayed(store: Store, clock: FakeClock) -> None:
    await put_many(store, 7, delay_seconds=60)


async def enqueue_mixed(store: Store, clock: FakeClock) -> None:
    past, future = clock.now() - timedelta(hours=1), clock.now() + timedelta(hours=1)
    await store.enqueue(
        [
            new_job(type=type, queue=queue, delay_seconds=delay, available_at=at)
            for type in ("a", "b")
            for queue in ("x", "y")
            for delay, at in ((0.0, None), (60.0, None), (0.0, past), (0.0, future), (60.0, past), (60.0, clock.now()))
        ]
    )


async def enqueue_at_a_time(store: Store, clock: FakeClock) -> None:
    await put_many(store, 3, available_at=clock.now() + timedelta(hours=1))
    await put_many(store, 3, available_at=clock.now() - timedelta(hours=1))


async def enqueue_duplicates(store: Store, clock: FakeClock) -> None:
    key = forever("k", OnConflict.RETURN_EXISTING)
    await store.enqueue([new_job(unique=key), new_job(type="b", unique=key), new_job(type="b"), new_job(unique=key)])
    await store.enqueue([new_job(type="b", unique=key, delay_seconds=60)])


async def enqueue_refused(store: Store, clock: FakeClock) -> None:
    await put(store, unique=forever())
    with pytest.raises(DuplicateJob):
        await store.enqueue([new_job(), new_job(type="b", delay_seconds=60), new_job(unique=forever())])


async def enqueue_in_a_transaction(store: Store, clock: FakeClock) -> None:
    async with store.transaction() as transaction:
        await transaction.enqueue([new_job(), new_job(type="b", delay_seconds=60)])


async def enqueue_in_a_transaction_that_is_rolled_back(store: Store, clock: FakeClock) -> None:
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.enqueue([new_job(), new_job(type="b", delay_seconds=60)])
            raise Interrupted


async def refused_in_a_transaction(store: Store, clock: FakeClock) -> None:
    await put(store, unique=forever())
    async with store.transaction() as transaction:
        with suppress(DuplicateJob):
            await transaction.enqueue([new_job(type="b"), new_job(unique=forever())])


async def claim_some(store: Store, clock: FakeClock) -> None:
    await put_many(store, 5)
    await store.claim("default", ANN, 3)


async def claim_of_due_jobs(store: Store, clock: FakeClock) -> None:
    await put_many(store, 5, delay_seconds=60)
    await put_many(store, 2, delay_seconds=120, type="b")
    clock.advance(61)
    await agree(store, clock)  # due, but not claimed or peeked at yet
    assert len(await store.claim("default", ANN, 3)) == 3


async def claim_under_limits(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put_many(store, 3, limit_key="api:a", delay_seconds=10)
    await put_many(store, 3, limit_key="api:b")
    await put_many(store, 3)
    clock.advance(11)
    assert len(await store.claim("default", ANN, 10)) == 5


async def settle_with_every_outcome(store: Store, clock: FakeClock) -> None:
    for queue in ("x", "y"):
        await store.enqueue([new_job(queue=queue, type=f"t{n % 3}") for n in range(20)])
        claims = await store.claim(queue, ANN, 20)
        outcomes = [*Outcome, *Outcome]
        delays = [0.0] * len(Outcome) + [60.0] * len(Outcome)
        ends = [
            end(claimed, outcome, queue=queue, delay_seconds=delay)
            for claimed, outcome, delay in zip(claims, outcomes, delays, strict=False)
        ]
        assert await store.settle(ANN, ends) == []


async def settle_what_was_to_be_cancelled(store: Store, clock: FakeClock) -> None:
    await put_many(store, len(Outcome))
    claims = await store.claim("default", ANN, 100)
    for claimed in claims:
        await store.cancel(claimed.id)
    await agree(store, clock)
    ends = [end(claimed, outcome, delay_seconds=60) for claimed, outcome in zip(claims, Outcome, strict=False)]
    await store.settle(ANN, ends)


async def settle_what_was_lost(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    for outcome in Outcome:
        late = Settlement(claimed.id, claimed.lease + 1, outcome, delay_seconds=60, type="other", queue="other")
        assert await store.settle(ANN, [late]) == [claimed.id]
        assert await store.settle(BEN, [end(claimed, outcome)]) == [claimed.id]


async def settle_in_a_transaction(store: Store, clock: FakeClock) -> None:
    await put_many(store, 2)
    first, second = await store.claim("default", ANN, 2)
    async with store.transaction() as transaction:
        await transaction.settle(ANN, end(first))
        await transaction.settle(ANN, end(second, Outcome.RETRY, delay_seconds=5))


async def settle_in_a_transaction_that_is_rolled_back(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.settle(ANN, end(claimed, Outcome.FAILED))
            raise Interrupted


async def rescue(store: Store, clock: FakeClock) -> None:
    spent = await put_and_take(store, type="spent", max_attempts=1)
    cancelled = await put_and_take(store, type="cancelled")
    await store.cancel(cancelled.id)
    again, later = await put_and_take(store, type="again"), await put_and_take(store, type="later", queue="slow")
    clock.advance(LATE)
    rescued = {one.job_id for one in await store.rescue(10, {"slow": 60.0}, str)}
    assert rescued == {spent.id, cancelled.id, again.id, later.id}


async def cancel_all_kinds(store: Store, clock: FakeClock) -> None:
    running = await put_and_take(store)
    jobs = [
        await put(store),
        await put(store, delay_seconds=60, type="b"),
        await put(store, limit_key="api", queue="x"),
        await put(store, delay_seconds=10, queue="x"),
        running.id,
        await put_and_end(store, queue="y"),
    ]
    clock.advance(11)  # one is due now, but not claimed or peeked at yet
    for job_id in jobs:
        await store.cancel(job_id)
        await store.cancel(job_id)


async def retry_the_dead(store: Store, clock: FakeClock) -> None:
    for outcome in (Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL, Outcome.SUCCEEDED):
        await put_and_end(store, outcome, type=outcome.name)
    delayed = await put(store, delay_seconds=60)
    await store.cancel(delayed)
    assert len((await store.retry(EVERYTHING, 10)).retried) == 4


async def retry_in_vain(store: Store, clock: FakeClock) -> None:
    await put_and_end(store, Outcome.FAILED, unique=while_active())
    await put(store, unique=while_active())
    assert len((await store.retry(EVERYTHING, 10)).conflicts) == 1


async def discard_the_dead(store: Store, clock: FakeClock) -> None:
    for outcome in (Outcome.FAILED, Outcome.CANCELLED, Outcome.FATAL, Outcome.SUCCEEDED):
        await put_and_end(store, outcome, type=outcome.name)
    assert len(await store.discard(JobFilter(status=Status.FAILED), 1)) == 1
    await agree(store, clock)
    assert len(await store.discard(EVERYTHING, 10)) == 2


async def prune_by_age(store: Store, clock: FakeClock) -> None:
    await _finish_some(store, clock)
    await store.prune(dict.fromkeys((Status.SUCCEEDED, Status.FAILED, Status.CANCELLED), KeepPolicy(days=1.5)), 100)


async def prune_by_count(store: Store, clock: FakeClock) -> None:
    await _finish_some(store, clock)
    await store.prune(dict.fromkeys((Status.SUCCEEDED, Status.FAILED, Status.CANCELLED), KeepPolicy(count=1)), 100)


async def prune_a_little(store: Store, clock: FakeClock) -> None:
    await _finish_some(store, clock)
    await store.prune({Status.FAILED: KeepPolicy(days=0.5, count=0), Status.SUCCEEDED: KeepPolicy(count=0)}, 1)


async def _finish_some(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED):
            await put_and_end(store, outcome, queue="x", type=outcome.name)
        clock.advance(days=1)


CHANGES: list[Change] = [
    nothing,
    enqueue_one,
    enqueue_many,
    enqueue_many_delayed,
    enqueue_mixed,
    enqueue_at_a_time,
    enqueue_duplicates,
    enqueue_refused,
    enqueue_in_a_transaction,
    enqueue_in_a_transaction_that_is_rolled_back,
    refused_in_a_transaction,
    claim_some,
    claim_of_due_jobs,
    claim_under_limits,
    settle_with_every_outcome,
    settle_what_was_to_be_cancelled,
    settle_what_was_lost,
    settle_in_a_transaction,
    settle_in_a_transaction_that_is_rolled_back,
    rescue,
    cancel_all_kinds,
    retry_the_dead,
    retry_in_vain,
    discard_the_dead,
    prune_by_age,
    prune_by_count,
    prune_a_little,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_the_counts_are_what_is_there_whatever_happened(
    store: Store, other: Store, clock: FakeClock, change: Change
) -> None:
    await change(store, clock)
    await agree(store, clock)
    await agree(other, clock)
    while await store.compact(1):  # check after every step
        await agree(store, clock)
    await agree(store, clock)


# -- through a caller's connection -------------------------------------------------------------------


async def test_jobs_count_from_the_callers_commit(store: Store, caller: Caller, clock: FakeClock) -> None:
    await put(store)
    await caller.enqueue(store, [*new_jobs(3), new_job(type="b", delay_seconds=60)])
    await agree(store, clock)
    assert (await store.counts())[Status.QUEUED] == 1
    await caller.commit()
    await agree(store, clock)
    await compact_all(store)
    await agree(store, clock)
    assert (await store.counts())[Status.QUEUED] == 5


async def test_jobs_never_count_when_the_caller_rolls_back(store: Store, caller: Caller, clock: FakeClock) -> None:
    await caller.enqueue(store, [*new_jobs(3), new_job(type="b", delay_seconds=60)])
    await caller.rollback()
    await agree(store, clock)
    await compact_all(store)
    await agree(store, clock)
    assert await store.totals() == []


# -- compaction --------------------------------------------------------------------------------------


async def test_folding_twice_is_as_good_as_once(store: Store, clock: FakeClock) -> None:
    await settle_with_every_outcome(store, clock)
    await store.compact(10_000)
    before = (await store.counts(), await store.totals(), await store.activity(HOUR_SECONDS))
    assert await store.compact(10_000) == 0
    assert (await store.counts(), await store.totals(), await store.activity(HOUR_SECONDS)) == before


async def test_a_compact_takes_no_more_notes_than_its_limit(store: Store) -> None:
    for _ in range(7):
        await put(store)
    while (folded := await store.compact(3)) > 0:
        assert folded <= 3


async def test_folding_an_empty_store_does_nothing(store: Store, clock: FakeClock) -> None:
    assert await store.compact(100) == 0
    await agree(store, clock)
    assert (await store.totals(), await store.activity(DAY_SECONDS)) == ([], [])


async def test_two_who_compact_at_once_count_nothing_twice(store: Store, other: Store, clock: FakeClock) -> None:
    for number in range(30):
        await put_and_end(store, Outcome.FAILED if number % 3 else Outcome.SUCCEEDED, type=f"t{number % 4}")
    before = await store.activity(HOUR_SECONDS)
    while sum(await asyncio.gather(*((store, other)[n % 2].compact(5) for n in range(6)))):
        pass
    await agree(store, clock)
    assert await store.activity(HOUR_SECONDS) == before


async def test_the_counts_are_what_is_there_after_much_at_once(store: Store, other: Store, clock: FakeClock) -> None:
    await put_many(store, 20, delay_seconds=5)
    clock.advance(6)

    async def work(each: Store, owner: str) -> None:
        for number in range(6):
            await each.enqueue([new_job(type=f"t{number % 2}", delay_seconds=number % 3) for _ in range(4)])
            claims = await each.claim("default", owner, 5)
            outcomes = [Outcome.SUCCEEDED, Outcome.RETRY, Outcome.FAILED, Outcome.RELEASE, Outcome.CANCELLED]
            ends = [
                end(claimed, outcome, delay_seconds=number % 2)
                for claimed, outcome in zip(claims, outcomes, strict=False)
            ]
            assert await each.settle(owner, ends) == []
            if number % 2:
                await each.retry(EVERYTHING, 2)

    async def chores(each: Store) -> None:
        for _ in range(10):
            await each.compact(3)
            counts = await each.counts()
            assert min(counts.values()) >= 0
            await each.discard(EVERYTHING, 1)

    workers = (work((store, other)[n % 2], owner) for n, owner in enumerate(uuid7s(6)))
    await asyncio.gather(*workers, chores(store), chores(other))
    await agree(store, clock)
    await compact_all(store)
    await agree(other, clock)


# -- activity ----------------------------------------------------------------------------------------


async def activity(store: Store, seconds: float = HOUR_SECONDS) -> list[Activity]:
    """Return the activity; asserts that compaction does not change it."""
    before = await store.activity(seconds)
    await compact_all(store)
    assert await store.activity(seconds) == before
    return before


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.SUCCEEDED, {"succeeded": 1}),
        (Outcome.FAILED, {"failed": 1, "failures": 1}),
        (Outcome.CANCELLED, {"cancelled": 1}),
        (Outcome.RETRY, {"failures": 1, "retries": 1}),
        (Outcome.CRASH, {"failures": 1}),
        (Outcome.FATAL, {"failed": 1, "failures": 1}),
    ],
)
@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_activity_tells_how_attempts_ended(
    store: Store, outcome: Outcome, expected: dict[str, int], delay: float
) -> None:
    claimed = await put_and_take(store, type="t", queue="q")
    await settle(store, claimed, outcome, queue="q", seconds=1.5, delay_seconds=delay)
    nothing_else = Activity("q", "t", 0, 0, 0, 0, 0, 0, 1.5)
    assert await activity(store) == [nothing_else._replace(**expected)]


@pytest.mark.parametrize(
    ("outcome", "failures"), [(Outcome.RETRY, 1), (Outcome.CRASH, 1), (Outcome.RELEASE, 0), (Outcome.SUSPECT, 0)]
)
async def test_what_was_to_be_cancelled_counts_as_cancelled_and_not_as_retried(
    store: Store, outcome: Outcome, failures: int
) -> None:
    claimed = await put_and_take(store, type="t")
    await store.cancel(claimed.id)
    await settle(store, claimed, outcome)
    assert await activity(store) == [Activity("default", "t", 0, 0, 1, failures, 0, 0, 0.0)]


@pytest.mark.parametrize("outcome", [Outcome.RELEASE, Outcome.SUSPECT])
@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_an_attempt_that_was_given_back_is_no_activity(
    store: Store, clock: FakeClock, outcome: Outcome, delay: float
) -> None:
    await settle(store, await put_and_take(store), outcome, seconds=2, delay_seconds=delay)
    assert await activity(store) == []
    clock.advance(61)
    await put(store)
    first, second = await store.claim("default", ANN, 2)
    await store.settle(ANN, [end(first, seconds=3), end(second, outcome, seconds=4, delay_seconds=delay)])
    (both,) = await activity(store)
    assert (both.succeeded, both.seconds) == (1, 3.0)


async def test_activity_tells_what_was_rescued_and_not_that_it_was_retried(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, type="again")
    await put_and_take(store, type="spent", max_attempts=1)
    await store.cancel((await put_and_take(store, type="stopped")).id)
    clock.advance(LATE)
    await store.rescue(10, {}, str)
    assert await activity(store) == [
        Activity("default", "again", 0, 0, 0, 1, 0, 1, 0.0),
        Activity("default", "spent", 0, 1, 0, 1, 0, 1, 0.0),
        Activity("default", "stopped", 0, 0, 1, 0, 0, 1, 0.0),
    ]


async def test_activity_tells_who_was_cancelled_before_it_started(store: Store) -> None:
    for delay in (0, 60):
        await store.cancel(await put(store, type="t", delay_seconds=delay))
    assert await activity(store) == [Activity("default", "t", 0, 0, 2, 0, 0, 0, 0.0)]


async def test_activity_is_told_by_queue_and_type(store: Store) -> None:
    for queue, type, outcome in (
        ("x", "b", Outcome.FAILED),
        ("y", "a", Outcome.SUCCEEDED),
        ("x", "a", Outcome.SUCCEEDED),
        ("x", "a", Outcome.FAILED),
        ("x", "a", Outcome.SUCCEEDED),
    ):
        await put_and_end(store, outcome, queue=queue, type=type)
    told = [(one.queue, one.type, one.succeeded, one.failed) for one in await activity(store)]
    assert told == [("x", "a", 2, 1), ("x", "b", 0, 1), ("y", "a", 1, 0)]


async def test_waiting_and_running_jobs_are_no_activity(store: Store, clock: FakeClock) -> None:
    await enqueue_mixed(store, clock)
    await claim_of_due_jobs(store, clock)
    assert await activity(store) == []


async def test_a_failure_that_was_retried_or_discarded_or_pruned_has_happened_all_the_same(
    store: Store, clock: FakeClock
) -> None:
    retried, discarded, pruned = [await put_and_end(store, Outcome.FAILED) for _ in range(3)]
    expected = await activity(store)
    assert (expected[0].failed, expected[0].failures) == (3, 3)
    await store.retry(JobFilter(ids=[retried]), 10)
    await store.discard(JobFilter(ids=[discarded]), 10)
    clock.advance(1)
    assert await store.prune({Status.FAILED: KeepPolicy(days=0)}, 10) == {Status.FAILED: 1}
    assert await store.get(pruned) is None
    assert await activity(store) == expected


async def test_what_a_transaction_took_back_has_not_happened(store: Store, clock: FakeClock) -> None:
    await settle_in_a_transaction_that_is_rolled_back(store, clock)
    assert await activity(store) == []


async def test_what_came_too_late_has_not_happened(store: Store, clock: FakeClock) -> None:
    claimed: Claimed = await put_and_take(store)
    await store.settle(BEN, [end(claimed, Outcome.FAILED, seconds=9, failure=kept(claimed))])
    assert await activity(store) == []


async def test_of_a_batch_only_what_was_settled_has_happened(store: Store) -> None:
    keyed = await put_and_take(store, type="t", unique=while_active("mine"))
    await put_many(store, 3, type="t")
    mine, theirs, late = await store.claim("default", ANN, 3)
    await settle(store, late, type="t", seconds=8)
    told = [end(claimed, seconds=seconds) for claimed, seconds in ((keyed, 1), (late, 4), (mine, 2))]
    assert await store.settle(ANN, told) == [late.id]
    assert await store.settle(BEN, [end(theirs, seconds=16)]) == [theirs.id]
    assert await activity(store) == [Activity("default", "t", 3, 0, 0, 0, 0, 0, 11.0)]
    assert await counted(store) == {Status.SUCCEEDED: 3, Status.PROCESSING: 1}
    assert (await store.enqueue([new_job(unique=while_active("mine"))]))[0].created


async def test_activity_is_counted_by_whole_minutes(store: Store, clock: FakeClock) -> None:
    clock.advance(30)
    await put_and_end(store)
    clock.advance(29)  # 00:00:59
    assert len(await activity(store, 1)) == 1
    clock.advance(31)  # 00:01:30
    assert len(await activity(store, 60)) == 1
    assert await activity(store, 20) == []
    clock.advance(30)  # 00:02:00
    assert await activity(store, 60) == []
    assert len(await activity(store, 61)) == 1


async def test_activity_adds_up_over_minutes(store: Store, clock: FakeClock) -> None:
    for number in range(5):
        await put_and_end(store, Outcome.FAILED)
        clock.advance(60)
        if number % 2:
            await compact_all(store)
    assert [one.failed for one in await activity(store, 5 * 60)] == [5]
    assert [one.failed for one in await activity(store, 2 * 60)] == [2]


async def test_activity_is_known_for_a_day_and_forgotten_after_it(store: Store, clock: FakeClock) -> None:
    await put_and_end(store)
    clock.advance(DAY_SECONDS)
    assert len(await activity(store, DAY_SECONDS)) == 1
    clock.advance(hours=2)
    await store.compact(100)
    assert await store.activity(3 * DAY_SECONDS) == []
    await agree(store, clock)

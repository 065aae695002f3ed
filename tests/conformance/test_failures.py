"""Failures: each failed attempt is recorded together with its settlement, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from conformance.builders import (
    ANN,
    BEN,
    EVERYTHING,
    VISIBILITY_SECONDS,
    end,
    failure_ids,
    failures,
    forever,
    kept,
    near,
    new_job,
    new_jobs,
    put_and_fail,
    put_and_take,
    put_many,
    record,
    settle,
    status,
    take,
    while_active,
)
from rowlock.clock import FakeClock
from rowlock.ids import uuid7
from rowlock.storage.contract import Store
from rowlock.storage.records import Failed, JobFilter, KeepPolicy, OnConflict, Outcome, Settlement, Status
from rowlock.storage.reliability import FailureFilter, FailureRecord

LATE = VISIBILITY_SECONDS + 1
FAILING = [Outcome.RETRY, Outcome.CRASH, Outcome.FAILED, Outcome.FATAL]
ODD_TEXTS = pytest.mark.parametrize("text", ["before\x00after", "before \udcff after"], ids=["nul", "surrogate"])
# JSON can contain text that no text column can store.
ODD_PAYLOADS = pytest.mark.parametrize(
    "payload", [r'{"name": "a\u0000b"}', r'{"deep": [{"half": "\ud83d"}]}'], ids=["nul", "surrogate"]
)


SOME_ID = "019cc000-0000-7000-8000-000000000001"


class Interrupted(Exception):
    """Any exception of a handler."""


def hide(payload: str) -> str:
    return '{"hidden": true}'


# -- without a job -----------------------------------------------------------------------------------


async def test_a_failure_of_a_job_that_is_not_in_the_store_is_recorded_once(store: Store, clock: FakeClock) -> None:
    failure = FailureRecord(
        id=uuid7(),
        job_id=uuid7(),
        job_name="report.make",
        queue_name="reports",
        company_id="acme",
        payload='{"month": "[REDACTED]\\u0000"}',
        attempts=1,
        max_attempts=1,
        is_final_attempt=True,
        failed_reason="ValueError: no such month",
        stack_trace="Traceback",
        first_failed_at=clock.now(),
        resolved_at=None,
        started_at=clock.now() - timedelta(seconds=2),
        owner=ANN,
    )
    for _ in range(2):
        await store.add_failure(failure)
    assert await failures(store) == [failure]
    other = replace(
        failure, id=uuid7(), company_id=None, stack_trace=None, failed_reason="odd \x00 \ud800", started_at=None
    )
    await store.add_failure(other)
    assert {found.id for found in await failures(store)} == {failure.id, other.id}
    found = await store.failure(other.id)
    assert found is not None
    assert (found.company_id, found.stack_trace, found.started_at) == (None, None, None)
    assert await store.has_unnotified()


# -- with a settlement -------------------------------------------------------------------------------


async def test_a_failure_is_recorded_with_all_that_is_known(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(
        store, type="report.make", queue="reports", company_id="acme", max_attempts=3, payload='{"month": 5}'
    )
    clock.advance(7.25)
    failure = Failed(uuid7(), '{"month": "[REDACTED]"}', 'Traceback:\n  File "ü.py", line 1')
    ended = end(
        claimed, Outcome.RETRY, queue="reports", error="ValueError: no such month", failure=failure, seconds=2.5
    )
    assert await store.settle(ANN, [ended]) == []
    expected = FailureRecord(
        id=failure.id,
        job_id=claimed.id,
        job_name="report.make",
        queue_name="reports",
        company_id="acme",
        payload='{"month": "[REDACTED]"}',
        attempts=1,
        max_attempts=3,
        is_final_attempt=False,
        failed_reason="ValueError: no such month",
        stack_trace='Traceback:\n  File "ü.py", line 1',
        first_failed_at=clock.now(),
        resolved_at=None,
        started_at=clock.now() - timedelta(seconds=2.5),
        owner=ANN,
    )
    assert await store.failure(failure.id) == expected
    assert await failures(store) == [expected]


async def test_what_is_not_known_is_left_empty(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.FAILED, failure=kept(claimed))
    (found,) = await failures(store)
    assert (found.company_id, found.stack_trace, found.failed_reason, found.resolved_at) == (None, None, "", None)


@pytest.mark.parametrize(
    ("outcome", "final"),
    [(Outcome.RETRY, False), (Outcome.CRASH, False), (Outcome.FAILED, True), (Outcome.FATAL, True)],
)
async def test_a_failure_is_final_when_the_job_has_failed_with_it(store: Store, outcome: Outcome, final: bool) -> None:
    found = await put_and_fail(store, outcome)
    assert found.is_final_attempt is final
    assert (await status(store, found.job_id) is Status.FAILED) is final


async def test_every_attempt_leaves_a_failure_of_its_own(store: Store, clock: FakeClock) -> None:
    job_id = (await put_and_fail(store, Outcome.RETRY, "first", max_attempts=3)).job_id
    for outcome, reason in ((Outcome.CRASH, "second"), (Outcome.FAILED, "third")):
        clock.advance(60)
        claimed = await take(store)
        await settle(store, claimed, outcome, error=reason, failure=kept(claimed))
    found = [(one.failed_reason, one.attempts, one.is_final_attempt) for one in await failures(store)]
    assert found == [("third", 3, True), ("second", 2, False), ("first", 1, False)]
    assert {one.job_id for one in await failures(store)} == {job_id}


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_no_failure_is_recorded_where_none_came_along(store: Store, outcome: Outcome) -> None:
    await settle(store, await put_and_take(store), outcome, error="whatever")
    assert await failures(store) == []


@pytest.mark.parametrize("outcome", FAILING)
async def test_a_failure_is_not_recorded_when_the_lease_was_lost(
    store: Store, clock: FakeClock, outcome: Outcome
) -> None:
    old = await put_and_take(store)
    clock.advance(LATE)
    await store.rescue(10, {}, hide)
    (lost,) = await failures(store)
    new = await take(store, BEN)
    assert await store.settle(ANN, [end(old, outcome, error="late", failure=kept(old))]) == [old.id]
    assert await store.settle(BEN, [end(old, outcome, error="old", failure=kept(old))]) == [old.id]
    assert await store.settle(ANN, [end(new, outcome, error="not ours", failure=kept(new))]) == [new.id]
    assert await failures(store) == [lost]


async def test_one_lease_that_fails_twice_at_once_leaves_one_failure(store: Store, other: Store) -> None:
    for _ in range(5):
        claimed = await put_and_take(store)
        ends = [end(claimed, Outcome.FAILED, failure=kept(claimed)) for _ in range(4)]
        await asyncio.gather(*((store, other)[n % 2].settle(ANN, [one]) for n, one in enumerate(ends)))
        assert len(await failures(store, FailureFilter(job_id=claimed.id))) == 1


@pytest.mark.parametrize(
    ("outcome", "ended", "final"),
    [
        (Outcome.RETRY, Status.CANCELLED, False),
        (Outcome.CRASH, Status.CANCELLED, False),
        (Outcome.FAILED, Status.FAILED, True),
        (Outcome.FATAL, Status.FAILED, True),
    ],
)
async def test_a_failure_agrees_with_its_job_when_that_was_to_be_cancelled(
    store: Store, outcome: Outcome, ended: Status, final: bool
) -> None:
    claimed = await put_and_take(store)
    await store.cancel(claimed.id)
    await settle(store, claimed, outcome, failure=kept(claimed))
    (found,) = await failures(store)
    assert (await status(store, claimed.id), found.is_final_attempt, found.attempts) == (ended, final, 1)


async def test_a_batch_records_each_failure_with_its_own_job(store: Store, clock: FakeClock) -> None:
    again = await put_and_take(store, type="again", company_id="again")
    await settle(store, again, Outcome.RELEASE)  # so that the leases in the batch differ
    jobs = [
        new_job(type=f"t{n}", company_id=f"c{n}" if n % 2 else None, max_attempts=n + 1, payload=f'{{"n": {n}}}')
        for n in range(40)
    ]
    await store.enqueue(jobs)
    claims = await store.claim("default", ANN, 100)
    assert len(claims) == 41
    assert {claimed.lease for claimed in claims} == {1, 2}
    lost = {claimed.id for claimed in claims[5::10]}
    ends, expected = [], {}
    for place, claimed in enumerate(claims):
        outcome = (Outcome.SUCCEEDED, *FAILING)[place % 5]
        failure = None if outcome is Outcome.SUCCEEDED else kept(claimed, f"stack {place}")
        lease = claimed.lease + (9 if claimed.id in lost else 0)
        error = f"error {place}"
        ends.append(Settlement(claimed.id, lease, outcome, error=error, type=claimed.type, failure=failure))
        if failure is not None and claimed.id not in lost:
            final = outcome in (Outcome.FAILED, Outcome.FATAL)
            expected[failure.id] = (claimed.id, claimed.type, claimed.company_id, claimed.payload, error, final)
    assert set(await store.settle(ANN, ends)) == lost
    found = {
        one.id: (one.job_id, one.job_name, one.company_id, one.payload, one.failed_reason, one.is_final_attempt)
        for one in await failures(store)
    }
    assert found == expected
    assert all(one.stack_trace == f"stack {one.failed_reason[6:]}" for one in await failures(store))


async def test_a_thousand_failures_are_recorded_with_one_call(store: Store) -> None:
    await store.enqueue(new_jobs(1_000))
    claims = await store.claim("default", ANN, 1_000)
    ends = [end(claimed, Outcome.FAILED, error="no", failure=kept(claimed, "s" * 100)) for claimed in claims]
    assert await store.settle(ANN, ends) == []
    found = await failures(store, page=400)
    assert {one.job_id for one in found} == {claimed.id for claimed in claims}


@ODD_TEXTS
async def test_a_reason_or_stack_that_no_database_takes_does_not_lose_the_batch(store: Store, text: str) -> None:
    await put_many(store, 2)
    bad, good = await store.claim("default", ANN, 2)
    ends = [
        end(bad, Outcome.FAILED, error=text, failure=kept(bad, text)),
        end(good, Outcome.RETRY, error="plain", failure=kept(good, "plain")),
    ]
    assert await store.settle(ANN, ends) == []
    found = {one.job_id: one for one in await failures(store)}
    for kept_text in (found[bad.id].failed_reason, found[bad.id].stack_trace or ""):
        assert kept_text.startswith("before")
        assert kept_text.endswith("after")
    assert (found[good.id].failed_reason, found[good.id].stack_trace) == ("plain", "plain")


@ODD_PAYLOADS
async def test_a_payload_that_escapes_what_no_text_can_hold_does_not_lose_the_batch(store: Store, payload: str) -> None:
    await store.enqueue([new_job(payload=payload), new_job()])
    claims = await store.claim("default", ANN, 2)
    ends = [end(claimed, Outcome.FAILED, error="no", failure=kept(claimed)) for claimed in claims]
    assert await store.settle(ANN, ends) == []
    assert {one.job_id: one.payload for one in await failures(store)} == {one.id: one.payload for one in claims}


async def test_a_long_reason_and_stack_are_kept_whole(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.FAILED, error="ü" * 2_000, failure=kept(claimed, "🛶" * 4_000))
    (found,) = await failures(store)
    assert (found.failed_reason, found.stack_trace) == ("ü" * 2_000, "🛶" * 4_000)


# -- in a transaction --------------------------------------------------------------------------------


async def test_a_failure_in_a_transaction_appears_with_the_commit(store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        assert await transaction.settle(ANN, end(claimed, Outcome.FAILED, error="no", failure=kept(claimed)))
        assert await failures(other) == []
    (found,) = await failures(other)
    assert (found.job_id, found.is_final_attempt) == (claimed.id, True)


async def test_a_transaction_that_is_rolled_back_leaves_no_failure(store: Store, other: Store) -> None:
    claimed = await put_and_take(store)
    with suppress(Interrupted):
        async with store.transaction() as transaction:
            await transaction.settle(ANN, end(claimed, Outcome.FAILED, error="no", failure=kept(claimed)))
            raise Interrupted
    assert await failures(other) == []
    assert await status(other, claimed.id) is Status.PROCESSING


async def test_a_lost_lease_leaves_no_failure_in_a_transaction(store: Store) -> None:
    claimed = await put_and_take(store)
    async with store.transaction() as transaction:
        assert not await transaction.settle(BEN, end(claimed, Outcome.FAILED, failure=kept(claimed)))
    assert await failures(store) == []


# -- by a rescue -------------------------------------------------------------------------------------


async def test_a_rescue_records_the_lost_attempt(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, type="t", queue="q", company_id="acme", max_attempts=2)
    began = clock.now()
    clock.advance(LATE)
    await store.rescue(10, {}, hide)
    (found,) = await failures(store)
    assert near(found.started_at, began)
    assert found.owner == ANN
    assert (found.job_id, found.job_name, found.queue_name, found.company_id) == (claimed.id, "t", "q", "acme")
    assert (found.attempts, found.max_attempts, found.is_final_attempt) == (1, 2, False)
    assert near(found.first_failed_at, clock.now())
    assert (found.stack_trace, found.resolved_at) == (None, None)
    assert ANN in found.failed_reason
    assert found.failed_reason == (await record(store, claimed.id)).error
    assert await store.failure(found.id) == found


async def test_a_rescue_records_a_payload_that_was_redacted(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, payload='{"password": "canary"}')
    seen = []

    def redact(payload: str) -> str:
        seen.append(payload)
        return payload.replace("canary", "[REDACTED]")

    clock.advance(LATE)
    await store.rescue(10, {}, redact)
    (found,) = await failures(store)
    assert seen == ['{"password": "canary"}']
    assert found.payload == '{"password": "[REDACTED]"}'
    assert "canary" not in repr(found)


async def test_a_lost_attempt_is_final_only_when_attempts_are_spent(store: Store, clock: FakeClock) -> None:
    await put_and_take(store, max_attempts=3)
    for _ in range(3):
        clock.advance(LATE)
        assert len(await store.rescue(10, {}, hide)) == 1
        await store.claim("default", ANN, 1)
    assert [(one.attempts, one.is_final_attempt) for one in await failures(store)] == [
        (3, True),
        (2, False),
        (1, False),
    ]


async def test_a_rescue_records_no_failure_of_a_job_that_was_to_be_cancelled(store: Store, clock: FakeClock) -> None:
    cancelled, failed = await put_and_take(store), await put_and_take(store)
    await store.cancel(cancelled.id)
    clock.advance(LATE)
    await store.rescue(10, {}, hide)
    assert [one.job_id for one in await failures(store)] == [failed.id]


async def test_a_rescue_of_many_records_each_with_its_own_job(store: Store, clock: FakeClock) -> None:
    jobs = [new_job(type=f"t{n}", payload=f'{{"n": {n}}}', max_attempts=1 + n % 2) for n in range(20)]
    await store.enqueue(jobs)
    await store.claim("default", ANN, 10)
    await store.claim("default", BEN, 10)
    clock.advance(LATE)
    await store.rescue(100, {}, str)
    found = {(one.job_id, one.job_name, one.payload, one.is_final_attempt) for one in await failures(store)}
    assert found == {(job.id, job.type, job.payload, job.max_attempts == 1) for job in jobs}


@ODD_PAYLOADS
async def test_a_payload_that_escapes_what_no_text_can_hold_does_not_stop_a_rescue(
    store: Store, clock: FakeClock, payload: str
) -> None:
    claimed = await put_and_take(store, payload=payload)
    clock.advance(LATE)
    assert [one.job_id for one in await store.rescue(10, {}, str)] == [claimed.id]
    assert [one.payload for one in await failures(store)] == [payload]


async def test_a_redaction_that_fails_leaves_the_job_for_the_next_rescue(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store)
    clock.advance(LATE)

    def broken(payload: str) -> str:
        raise Interrupted

    with pytest.raises(Interrupted):
        await store.rescue(10, {}, broken)
    assert await failures(store) == []
    assert await status(store, claimed.id) is Status.PROCESSING
    assert len(await store.rescue(10, {}, hide)) == 1


# -- listing -----------------------------------------------------------------------------------------


async def some_failures(store: Store, clock: FakeClock, number: int) -> list[str]:
    """Create failures a minute apart. Returns them newest first."""
    found = []
    for _ in range(number):
        found.append((await put_and_fail(store)).id)
        clock.advance(60)
    return found[::-1]


async def test_failures_are_listed_newest_first(store: Store, clock: FakeClock) -> None:
    expected = await some_failures(store, clock, 5)
    assert await failure_ids(store) == expected


async def test_failures_of_one_moment_are_listed_newest_first(store: Store) -> None:
    expected = [(await put_and_fail(store)).id for _ in range(5)][::-1]
    assert await failure_ids(store, page=2) == expected


@pytest.mark.parametrize("page", [1, 2, 3, 5, 6, 100])
async def test_pages_of_failures_follow_each_other(store: Store, clock: FakeClock, page: int) -> None:
    expected = await some_failures(store, clock, 6)
    assert await failure_ids(store, page=page) == expected


async def test_the_last_page_of_failures_has_no_cursor(store: Store, clock: FakeClock) -> None:
    await some_failures(store, clock, 4)
    first = await store.failures(FailureFilter(), 2)
    assert first.next_cursor is not None
    last = await store.failures(FailureFilter(), 2, first.next_cursor)
    assert (len(last.failures), last.next_cursor) == (2, None)


async def test_pages_of_failures_go_on_where_they_ended_whatever_is_added(store: Store, clock: FakeClock) -> None:
    expected = await some_failures(store, clock, 6)
    page = await store.failures(FailureFilter(), 2)
    found = [one.id for one in page.failures]
    while page.next_cursor is not None:
        await put_and_fail(store)
        clock.advance(1)
        page = await store.failures(FailureFilter(), 2, page.next_cursor)
        found += [one.id for one in page.failures]
    assert found == expected


async def test_pages_of_failures_end_where_the_rest_was_pruned(store: Store, clock: FakeClock) -> None:
    expected = await some_failures(store, clock, 4)
    page = await store.failures(FailureFilter(), 3)
    clock.advance(days=1)
    assert await store.prune_failures(1, 1) == 1
    rest = await store.failures(FailureFilter(), 3, page.next_cursor)
    assert ([one.id for one in page.failures], rest.failures, rest.next_cursor) == (expected[:3], [], None)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "_",
        "garbage",
        "1",
        "seq-1",
        SOME_ID,
        f"_{SOME_ID}",
        f"yesterday_{SOME_ID}",
        "2030-01-01T00:00:00+00:00_",
        "2030-01-01T00:00:00+00:00_garbage",
        f"2030-01-01T00:00:00_{SOME_ID}",
        f"0001-01-01T00:00:00+14:00_{SOME_ID}",
        f"2030-01-01T00:00:00+00:00_{SOME_ID}\x00",
    ],
)
async def test_a_cursor_that_no_page_of_failures_came_with_is_refused(store: Store, cursor: str) -> None:
    await put_and_fail(store)
    with pytest.raises(ValueError):
        await store.failures(FailureFilter(), 10, cursor)


@pytest.mark.parametrize(
    "where",
    [
        FailureFilter(company_id="acme"),
        FailureFilter(job_name="report"),
        FailureFilter(final=False),
        FailureFilter(company_id="acme", job_name="report", final=False, unresolved=True),
    ],
)
async def test_a_filter_finds_the_failures_that_match(store: Store, where: FailureFilter) -> None:
    await put_and_fail(store, company_id="other", type="mail")
    expected = await put_and_fail(store, Outcome.RETRY, delay_seconds=60, company_id="acme", type="report")
    await put_and_fail(store, type="mail")
    assert await failure_ids(store, where) == [expected.id]


async def test_a_filter_finds_final_failures(store: Store) -> None:
    await put_and_fail(store, Outcome.RETRY, delay_seconds=60)
    final = await put_and_fail(store)
    assert await failure_ids(store, FailureFilter(final=True)) == [final.id]


async def test_a_filter_that_nothing_matches_finds_nothing(store: Store) -> None:
    await put_and_fail(store, company_id="acme", type="report")
    for where in (
        FailureFilter(company_id="acme", job_name="mail"),
        FailureFilter(company_id=""),
        FailureFilter(job_id=uuid7()),
        FailureFilter(job_id="not-a-uuid"),
        FailureFilter(final=False),
    ):
        assert await store.failures(where, 10) == await store.failures(FailureFilter(job_id=uuid7()), 10)


async def test_the_failures_of_one_job_are_found_by_its_id(store: Store) -> None:
    await put_and_fail(store)
    expected = await put_and_fail(store)
    assert await failure_ids(store, FailureFilter(job_id=expected.job_id)) == [expected.id]
    assert await failure_ids(store, FailureFilter(job_id=expected.job_id.upper())) == [expected.id]


async def test_pages_of_failures_obey_their_filter(store: Store, clock: FakeClock) -> None:
    expected = []
    for number in range(9):
        found = await put_and_fail(store, company_id=("a", "b", None)[number % 3])
        if found.company_id == "b":
            expected.append(found.id)
        clock.advance(1)
    assert await failure_ids(store, FailureFilter(company_id="b"), page=2) == expected[::-1]


async def test_a_failure_is_found_by_its_id_alone(store: Store) -> None:
    found = await put_and_fail(store)
    assert await store.failure(found.id) == found
    assert await store.failure(found.id.upper()) == found
    for nobodys in (uuid7(), found.job_id, "", "not-a-uuid", found.id + " "):
        assert await store.failure(nobodys) is None


# -- resolving and pruning ---------------------------------------------------------------------------


async def test_a_retry_resolves_the_failures_of_that_job_alone(store: Store, clock: FakeClock) -> None:
    left = await put_and_fail(store)
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.RETRY, failure=kept(claimed))
    claimed = await take(store)
    await settle(store, claimed, Outcome.FAILED, failure=kept(claimed))
    clock.advance(60)
    assert (await store.retry(JobFilter(ids=[claimed.id]), 10)).retried == [claimed.id]
    resolved = await failures(store, FailureFilter(job_id=claimed.id))
    assert len(resolved) == 2
    assert all(near(one.resolved_at, clock.now()) for one in resolved)
    assert await failures(store, FailureFilter(unresolved=True)) == [left]


async def test_a_failure_after_the_retry_is_open_and_the_earlier_stay_resolved(store: Store, clock: FakeClock) -> None:
    first = await put_and_fail(store)
    clock.advance(60)
    await store.retry(EVERYTHING, 10)
    resolved_at = clock.now()
    clock.advance(60)
    claimed = await take(store)
    await settle(store, claimed, Outcome.FAILED, failure=kept(claimed))
    (second,) = await failures(store, FailureFilter(unresolved=True))
    assert (second.job_id, second.attempts, second.resolved_at) == (first.job_id, 1, None)
    await store.retry(EVERYTHING, 10)
    times = [one.resolved_at for one in await failures(store)]
    assert near(times[0], clock.now())
    assert near(times[1], resolved_at)


async def test_a_retry_that_is_refused_resolves_nothing(store: Store) -> None:
    found = await put_and_fail(store, unique=while_active())
    await store.enqueue([new_job(unique=while_active())])
    answer = await store.retry(EVERYTHING, 10)
    assert (answer.retried, answer.conflicts) == ([], [found.job_id])
    assert await store.failure(found.id) == found


async def test_old_failures_are_pruned_and_young_ones_kept(store: Store, clock: FakeClock) -> None:
    found = []
    for _ in range(5):
        found.append((await put_and_fail(store)).id)
        clock.advance(days=1)
    assert await store.prune_failures(2.5, 100) == 3
    assert await failure_ids(store) == found[:2:-1]
    assert await store.prune_failures(2.5, 100) == 0


async def test_failures_are_pruned_oldest_first_and_no_more_than_asked(store: Store, clock: FakeClock) -> None:
    expected = await some_failures(store, clock, 5)
    clock.advance(days=30)
    assert await store.prune_failures(14, 2) == 2
    assert await failure_ids(store) == expected[:3]
    assert [await store.prune_failures(14, 2) for _ in range(3)] == [2, 1, 0]


async def test_failures_beyond_a_number_are_pruned_oldest_first(store: Store, clock: FakeClock) -> None:
    expected = await some_failures(store, clock, 7)
    assert await store.prune_failures(14, 100, count=7) == 0
    assert await store.prune_failures(14, 2, count=4) == 2  # at most the limit
    assert await failure_ids(store) == expected[:5]
    assert [await store.prune_failures(14, 2, count=4) for _ in range(2)] == [1, 0]
    assert await failure_ids(store) == expected[:4]
    clock.advance(days=30)
    assert await store.prune_failures(14, 3, count=2) == 3  # the expired ones first
    assert await store.prune_failures(14, 3, count=0) == 1


async def test_failures_of_one_moment_are_pruned_to_the_number(store: Store, clock: FakeClock) -> None:
    for _ in range(5):
        await put_and_fail(store)
    assert await store.prune_failures(14, 100, count=3) == 2
    assert len(await failures(store)) == 3


async def test_failures_beyond_a_number_are_pruned_once_by_two_at_once(
    store: Store, other: Store, clock: FakeClock
) -> None:
    expected = await some_failures(store, clock, 20)
    await asyncio.gather(*(each.prune_failures(14, 4, count=15) for each in (store, other, store, other)))
    assert (await failure_ids(store))[:15] == expected[:15]


async def test_failures_are_pruned_once_by_two_at_once(store: Store, other: Store, clock: FakeClock) -> None:
    await some_failures(store, clock, 20)
    clock.advance(days=30)
    removed = await asyncio.gather(*(each.prune_failures(14, 10) for each in (store, other, store, other)))
    left = len(await failures(store))
    assert sum(removed) + left == 20
    assert max(removed) <= 10


async def test_a_failure_outlives_its_job(store: Store, clock: FakeClock) -> None:
    pruned = await put_and_fail(store)
    clock.advance(days=2)
    assert await store.prune({Status.FAILED: KeepPolicy(days=1)}, 10) == {Status.FAILED: 1}
    discarded = await put_and_fail(store)
    assert await store.discard(EVERYTHING, 10) == [discarded.job_id]
    assert await store.get(pruned.job_id) is None
    assert await failures(store) == [discarded, pruned]


async def test_pruning_failures_touches_no_job(store: Store, clock: FakeClock) -> None:
    found = await put_and_fail(store, unique=forever("k", OnConflict.RETURN_EXISTING))
    before = await record(store, found.job_id)
    clock.advance(days=30)
    await store.prune_failures(1, 10)
    assert await record(store, found.job_id) == before

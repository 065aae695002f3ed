"""Dead groups: failed jobs grouped by type and reason, and jobs found by the reason of their failure."""

from __future__ import annotations

import pytest

from conformance.builders import (
    counted,
    listed,
    near,
    put,
    put_and_end,
    put_and_fail,
    put_and_take,
    settle,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.overview import REASON_LENGTH_MAX, DeadGroup, reason_of
from rowlock.storage.records import JobFilter, Outcome, Status

FAILED = JobFilter(Status.FAILED)
LONG = "ü" * (REASON_LENGTH_MAX + 50)
# A stored error, and the reason that it is found by.
ERRORS = {
    "ValueError: no": "ValueError: no",
    "ValueError: no\nand more\nof it": "ValueError: no",
    "ValueError: no (attempt 5 of 5, the last)": "ValueError: no",
    "ValueError: no\nmore (attempt 5 of 5, the last)": "ValueError: no",
    LONG: LONG[:REASON_LENGTH_MAX],
    f"{LONG} (attempt 1 of 1, the last)": LONG[:REASON_LENGTH_MAX],
    "🙂 gone": "🙂 gone",
    "\nsecond line": "",
    "%_\\'\"$1 :reason": "%_\\'\"$1 :reason",
    " spaces stay ": " spaces stay ",
    "": "",
}


async def groups(store: Store, where: JobFilter = FAILED, look_at: int = 1_000, limit: int = 100) -> list[DeadGroup]:
    return (await store.dead_groups(where, look_at, limit)).groups


async def dead(store: Store, error: str = "no", **changes: object) -> str:
    return (await put_and_fail(store, error=error, **changes)).job_id  # type: ignore[arg-type] # what a job may have


async def sizes(store: Store, where: JobFilter) -> dict[tuple[str, str], int]:
    return {(group.type, group.reason): group.count for group in await groups(store, where)}


async def test_an_empty_store_has_no_groups(store: Store) -> None:
    found = await store.dead_groups(FAILED, 10, 10)
    assert (found.groups, found.looked_at) == ([], 0)


async def test_failed_jobs_are_grouped_by_type_and_reason(store: Store, clock: FakeClock) -> None:
    began = clock.now()
    jobs = []
    for type_name, error in [("a", "one"), ("a", "one"), ("a", "two"), ("b", "one"), ("a", "one\nin other words")]:
        jobs.append(await dead(store, error, type=type_name))
        clock.advance(60)
    first, *rest = await groups(store)
    assert (first.type, first.reason, first.count) == ("a", "one", 3)
    assert near(first.first_at, began)
    assert (first.last_at - first.first_at).total_seconds() == pytest.approx(240)
    assert first.sample_id == jobs[4]
    told = [(group.type, group.reason, group.count) for group in rest]
    assert told == [("b", "one", 1), ("a", "two", 1)]  # groups of equal size: the latest first


async def test_only_what_failed_for_good_is_in_a_group(store: Store) -> None:
    for outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
        await put_and_end(store, outcome)
    await put_and_fail(store, Outcome.RETRY, "again", delay_seconds=60)
    await put_and_take(store)
    assert await groups(store) == []
    job_id = await dead(store)
    assert [group.sample_id for group in await groups(store)] == [job_id]
    await store.retry(FAILED, 10)
    assert await groups(store) == []


async def test_groups_are_narrowed_by_type_queue_and_company(store: Store) -> None:
    await dead(store, "x", type="mail.send", queue="mail", company_id="acme")
    await dead(store, "x", type="mail.fetch", queue="mail", company_id="other")
    await dead(store, "x", type="mailbox", company_id="acme")
    send, fetch, box = ("mail.send", "x"), ("mail.fetch", "x"), ("mailbox", "x")
    assert await sizes(store, FAILED) == {send: 1, fetch: 1, box: 1}
    assert await sizes(store, JobFilter(Status.FAILED, type="mail.send")) == {send: 1}
    assert await sizes(store, JobFilter(Status.FAILED, type_prefix="mail.")) == {send: 1, fetch: 1}
    assert await sizes(store, JobFilter(Status.FAILED, queue="mail")) == {send: 1, fetch: 1}
    assert await sizes(store, JobFilter(Status.FAILED, company_id="acme")) == {send: 1, box: 1}
    assert await sizes(store, JobFilter(Status.FAILED, queue="mail", company_id="acme", type_prefix="mail.")) == {
        send: 1
    }
    assert await sizes(store, JobFilter(Status.FAILED, company_id="nobody")) == {}


async def test_no_more_groups_come_than_were_asked_for_the_largest_first(store: Store) -> None:
    for number, error in ((1, "a"), (3, "b"), (2, "c")):
        for _ in range(number):
            await dead(store, error)
    found = await store.dead_groups(FAILED, 100, 2)
    assert [(group.reason, group.count) for group in found.groups] == [("b", 3), ("c", 2)]
    assert found.looked_at == 6


@pytest.mark.parametrize("company_id", [None, "acme"])
async def test_only_the_newest_are_looked_at(store: Store, company_id: str | None) -> None:
    for error in ("old", "old", "new", "old", "new"):
        await dead(store, error, company_id="acme")
    await dead(store, "else's", company_id="other")
    where = JobFilter(Status.FAILED, company_id=company_id)
    found = await store.dead_groups(where, 3, 100)
    assert found.looked_at == 3
    expected = {"old": 1, "new": 2} if company_id else {"old": 1, "new": 1, "else's": 1}
    assert {group.reason: group.count for group in found.groups} == expected


async def test_a_job_without_an_error_has_an_empty_reason(store: Store) -> None:
    job_id = await put_and_end(store, Outcome.FAILED)
    await dead(store, "something else")
    assert {group.sample_id: group.reason for group in await groups(store)}[job_id] == ""
    for where in (JobFilter(Status.FAILED, reason=""), JobFilter(Status.FAILED, reason="", ids=[job_id])):
        assert await listed(store, where) == [job_id]
        assert await store.count(where, 10) == 1
    assert await store.discard(JobFilter(Status.FAILED, reason=""), 10) == [job_id]


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
async def test_the_reason_is_what_every_store_says_it_is(store: Store, error: str) -> None:
    job_id = await dead(store, error)
    await dead(store, "something else")
    assert reason_of(error) == ERRORS[error]
    found = {group.sample_id: group.reason for group in await groups(store)}
    assert found[job_id] == ERRORS[error]
    for where in (
        JobFilter(Status.FAILED, reason=ERRORS[error]),
        JobFilter(Status.FAILED, reason=ERRORS[error], ids=[job_id]),
    ):
        assert await listed(store, where) == [job_id]
        assert await store.count(where, 10) == 1


async def test_a_reason_goes_with_all_other_filters(store: Store) -> None:
    found = await dead(store, "no\nmore", type="a", queue="q", company_id="acme")
    for changes in ({"type": "b"}, {"queue": "r"}, {"company_id": "other"}):
        await dead(store, "no", **{"type": "a", "queue": "q", "company_id": "acme"} | changes)
    await dead(store, "yes", type="a", queue="q", company_id="acme")
    where = JobFilter(Status.FAILED, "a", "q", "acme", reason="no")
    assert await listed(store, where, page=1) == [found]
    assert await store.count(where, 10) == 1
    assert len(await listed(store, JobFilter(Status.FAILED, reason="no"), page=1)) == 4


async def test_a_group_is_retried_and_discarded_alone(store: Store) -> None:
    for error in ("a", "a\nagain", "b", "b", "c"):
        await dead(store, error)
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.CANCELLED, error="a")
    assert len((await store.retry(JobFilter(Status.FAILED, reason="a"), 10)).retried) == 2
    assert len(await store.discard(JobFilter(Status.FAILED, reason="b"), 10)) == 2
    assert await counted(store) == {Status.QUEUED: 2, Status.FAILED: 1, Status.CANCELLED: 1}
    assert [group.reason for group in await groups(store)] == ["c"]


def test_a_reason_is_asked_of_failed_jobs_alone() -> None:
    for status in (None, Status.CANCELLED, Status.QUEUED):
        with pytest.raises(ValueError, match="failed"):
            JobFilter(status, reason="no")


async def test_a_job_that_waits_again_after_a_failure_is_found_by_no_reason(store: Store) -> None:
    await put_and_fail(store, Outcome.RETRY, "no", delay_seconds=60)
    await put(store)
    assert await listed(store, JobFilter(Status.FAILED, reason="no")) == []

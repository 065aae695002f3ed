"""Claim: up to `limit` available jobs, each with a new lease and one owner."""

from __future__ import annotations

import json

from conformance.builders import (
    ANN,
    BEN,
    end,
    ids,
    near,
    new_job,
    new_jobs,
    put,
    put_and_end,
    put_and_take,
    put_many,
    record,
    settle,
    take,
    taken,
)
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Outcome, Status


async def test_an_empty_queue_gives_nothing(store: Store) -> None:
    assert await store.claim("default", ANN, 10) == []


async def test_a_claimed_job_has_all_that_its_handler_needs(store: Store) -> None:
    job = new_job(priority=3, max_attempts=7, company_id="acme", limit_key="api", trace="00-a-b-01")
    await store.enqueue([job])
    claimed = await take(store)
    assert (claimed.id, claimed.attempt, claimed.max_attempts, claimed.deaths) == (job.id, 1, 7, 0)
    assert (claimed.priority, claimed.type, json.loads(claimed.payload)) == (3, job.type, json.loads(job.payload))
    assert (claimed.company_id, claimed.limit_key, claimed.trace) == ("acme", "api", "00-a-b-01")


async def test_a_claimed_job_without_extras_has_none(store: Store) -> None:
    claimed = await put_and_take(store)
    assert (claimed.company_id, claimed.limit_key, claimed.trace) == (None, None, None)


async def test_a_claimed_job_is_processing_and_shows_its_owner(store: Store, clock: FakeClock) -> None:
    claimed = await put_and_take(store, BEN)
    found = await record(store, claimed.id)
    assert (found.status, found.lock_owner, found.lease) == (Status.PROCESSING, BEN, claimed.lease)
    assert found.attempts == 1
    assert near(found.locked_at, clock.now())
    assert near(found.started_at, clock.now())
    assert found.finished_at is None


async def test_a_claimed_job_is_not_claimed_again(store: Store, other: Store) -> None:
    await put_and_take(store)
    assert await taken(store, BEN) == []
    assert await taken(other, BEN) == []


async def test_each_of_many_unlike_jobs_keeps_what_is_its_own_and_its_place(store: Store) -> None:
    jobs = [
        new_job(
            type=f"type.{number % 3}",
            payload=json.dumps({"number": number, "text": "x" * (20_000 if number % 7 == 0 else number)}),
            priority=100 + number % 2,
            max_attempts=1 + number % 4,
            company_id=f"company {number}" if number % 5 == 0 else None,
            trace=f"00-{number}-b-01" if number % 6 else None,
        )
        for number in range(60)
    ]
    await store.enqueue(jobs)
    early = await store.claim("default", ANN, 20)
    given_back = {claimed.id for claimed in early[::2]}
    await store.settle(ANN, [end(claimed, Outcome.RELEASE) for claimed in early if claimed.id in given_back])
    await store.settle(ANN, [end(claimed) for claimed in early if claimed.id not in given_back])
    gone = {claimed.id for claimed in early} - given_back
    expected = [
        (job.id, 2 if job.id in given_back else 1, job.max_attempts, job.priority, job.type, job.company_id, job.trace)
        for job in sorted(jobs, key=lambda job: job.priority)
        if job.id not in gone
    ]
    claimed = await store.claim("default", BEN, 100)
    assert [(c.id, c.lease, c.max_attempts, c.priority, c.type, c.company_id, c.trace) for c in claimed] == expected
    payloads = {job.id: json.loads(job.payload) for job in jobs}
    assert [json.loads(c.payload) for c in claimed] == [payloads[c.id] for c in claimed]
    assert {(c.attempt, c.deaths, c.limit_key) for c in claimed} == {(1, 0, None)}


async def test_a_claim_takes_no_more_than_its_limit(store: Store) -> None:
    jobs = await put_many(store, 5)
    assert await taken(store, limit=2) == jobs[:2]
    assert await taken(store, limit=2) == jobs[2:4]
    assert await taken(store, limit=2) == jobs[4:]


async def test_a_claim_of_none_takes_none(store: Store) -> None:
    job_id = await put(store)
    assert await store.claim("default", ANN, 0) == []
    assert await taken(store) == [job_id]


async def test_a_claim_sees_its_own_queue_only(store: Store) -> None:
    mine, theirs = await put(store, queue="mine"), await put(store, queue="theirs")
    assert await taken(store, queue="mine") == [mine]
    assert await taken(store, queue="theirs") == [theirs]
    assert await taken(store, queue="nobody's") == []


async def test_queue_names_are_exact(store: Store) -> None:
    await put(store, queue="mail")
    assert await taken(store, queue="Mail") == []
    assert await taken(store, queue="mail ") == []
    assert await taken(store, queue="mai%") == []


async def test_a_finished_job_is_not_claimed(store: Store) -> None:
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED):
        await put_and_end(store, outcome)
    assert await taken(store) == []


async def test_a_cancelled_job_is_not_claimed(store: Store) -> None:
    await store.cancel(await put(store))
    await store.cancel(await put(store, delay_seconds=5))
    assert await taken(store) == []


async def test_a_delayed_job_that_is_not_due_is_not_claimed(store: Store) -> None:
    await put(store, delay_seconds=60)
    assert await taken(store) == []


async def test_a_lease_grows_by_one_at_every_claim(store: Store) -> None:
    claimed = await put_and_take(store)
    for outcome in (Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT):
        await settle(store, claimed, outcome)
        again = await take(store)
        assert (again.id, again.lease) == (claimed.id, claimed.lease + 1)
        claimed = again


async def test_a_lease_starts_at_one(store: Store) -> None:
    assert (await put_and_take(store)).lease == 1


async def test_attempts_are_counted_from_one(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.RETRY)
    again = await take(store)
    assert (claimed.attempt, again.attempt) == (1, 2)


async def test_a_claimed_job_shows_its_deaths(store: Store) -> None:
    await settle(store, await put_and_take(store), Outcome.CRASH)
    await settle(store, await take(store), Outcome.CRASH)
    assert (await take(store)).deaths == 2


async def test_each_job_of_a_batch_has_the_same_new_owner(store: Store) -> None:
    await put_many(store, 3)
    claims = await store.claim("default", BEN, 3)
    assert {(await record(store, claimed.id)).lock_owner for claimed in claims} == {BEN}
    assert {held.job_id for held in await store.held(BEN)} == set(ids(claims))


async def test_a_worker_that_was_never_seen_may_claim(store: Store) -> None:
    assert await store.workers() == []
    job_id = await put(store)
    assert await taken(store, BEN) == [job_id]


async def test_a_job_enqueued_after_an_empty_claim_is_found(store: Store) -> None:
    assert await taken(store) == []
    first = await put(store)
    assert await taken(store) == [first]
    second = await put(store)
    assert await taken(store) == [second]


async def test_a_job_that_another_process_enqueued_is_found(store: Store, other: Store) -> None:
    assert await taken(store, limit=1) == []
    for _ in range(3):
        job_id = await put(other)
        assert await taken(store, limit=1) == [job_id]


async def test_a_job_given_back_is_found_by_the_one_that_gave_it_back(store: Store) -> None:
    first, second = await store.claim("default", ANN, 2) if await put_many(store, 2) else []
    await settle(store, first, Outcome.RELEASE)
    assert await taken(store) == [first.id]
    await settle(store, second, Outcome.RELEASE)
    assert await taken(store) == [second.id]


async def test_a_claim_reaches_past_jobs_that_are_delayed(store: Store) -> None:
    await store.enqueue(new_jobs(500, delay_seconds=600))
    job_id = await put(store)
    assert await taken(store, limit=1) == [job_id]


async def test_a_thousand_due_jobs_are_claimed_with_one_call(store: Store, clock: FakeClock) -> None:
    jobs = await put_many(store, 1_000, delay_seconds=60)
    clock.advance(61)
    assert await taken(store, limit=1_000) == jobs

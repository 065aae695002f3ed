"""Limits: how many jobs of a key run at once, and how many start in any window; pauses of a key."""

from __future__ import annotations

import pytest

from conformance.builders import ANN, BEN, end, new_jobs, put, put_and_take, put_many, record, settle, taken
from rowlock.clock import FakeClock
from rowlock.storage.contract import Store
from rowlock.storage.records import Limit, Outcome


async def test_a_key_without_a_limit_is_free(store: Store) -> None:
    jobs = await put_many(store, 5, limit_key="api")
    assert await taken(store) == jobs


async def test_no_more_jobs_of_a_key_run_at_once_than_its_limit(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=2)])
    jobs = await put_many(store, 5, limit_key="api")
    assert await taken(store, ANN) == jobs[:2]
    assert await taken(store, BEN) == []


async def test_the_end_of_a_job_lets_the_next_one_run(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = await put_many(store, 3, limit_key="api")
    for job_id in jobs:
        (claimed,) = await store.claim("default", ANN, 10)
        assert claimed.id == job_id
        await settle(store, claimed)


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASE, Outcome.CRASH, Outcome.SUSPECT])
async def test_a_job_that_waits_again_frees_its_place(store: Store, outcome: Outcome) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    first = await put_and_take(store, limit_key="api")
    second = await put(store, limit_key="api")
    await settle(store, first, outcome, delay_seconds=60)
    assert await taken(store) == [second]


async def test_a_rescued_job_frees_its_place(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put_and_take(store, limit_key="api")
    second = await put(store, limit_key="api", priority=1)
    clock.advance(31)
    await store.rescue(10, {}, str)
    assert await taken(store, BEN) == [second]


async def test_a_limit_spans_queues_and_owners(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put_and_take(store, ANN, queue="a", limit_key="api")
    await put(store, queue="b", limit_key="api")
    assert await taken(store, BEN, "b") == []


async def test_a_limit_spans_processes(store: Store, other: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put_many(store, 2, limit_key="api")
    assert len(await taken(store, ANN)) == 1
    assert await taken(other, BEN) == []


async def test_a_full_key_does_not_hold_up_the_jobs_behind_it(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    full = await put_many(store, 300, limit_key="api")
    free = await put_many(store, 3)
    other_key = await put(store, limit_key="mail")
    assert await taken(store, limit=10) == [full[0], *free, other_key]


async def test_a_full_key_does_not_hold_up_the_keys_behind_it(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put_many(store, 50, limit_key="api:a")
    free = await put(store, limit_key="api:b")
    assert len(await taken(store, limit=1)) == 1
    assert await taken(store, limit=10) == [free]


async def test_every_part_of_a_limit_is_counted_on_its_own(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = [await put(store, limit_key=key) for key in ("api:a", "api:a", "api:b", "api")]
    assert await taken(store) == [jobs[0], jobs[2], jobs[3]]


async def test_a_part_may_contain_colons(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = [await put(store, limit_key=key) for key in ("api:a:1", "api:a:1", "api:a:2")]
    assert await taken(store) == [jobs[0], jobs[2]]


async def test_a_limit_is_for_its_own_name_only(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = await put_many(store, 3, limit_key="api2")
    assert await taken(store) == jobs


async def test_a_new_definition_replaces_the_old_one(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = await put_many(store, 5, limit_key="api")
    assert await taken(store) == jobs[:1]
    await store.define_limits([Limit("api", concurrency=3)])
    assert await taken(store) == jobs[1:3]


async def test_a_lowered_limit_lets_nothing_start_until_enough_have_ended(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=3)])
    await put_many(store, 5, limit_key="api")
    first, second, third = await store.claim("default", ANN, 3)
    await store.define_limits([Limit("api", concurrency=1)])
    await settle(store, first)
    await settle(store, second)
    assert await taken(store) == []
    await settle(store, third)
    assert len(await taken(store)) == 1


async def test_defining_other_limits_leaves_a_limit_alone(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await store.define_limits([Limit("mail", concurrency=1)])
    await store.define_limits([])
    await put_many(store, 2, limit_key="api")
    assert len(await taken(store)) == 1


async def test_a_limit_may_be_lifted(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1, rate=1, per_seconds=60)])
    jobs = await put_many(store, 4, limit_key="api")
    await store.define_limits([Limit("api")])
    assert await taken(store) == jobs


async def test_no_more_jobs_of_a_key_start_than_its_rate(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", rate=2, per_seconds=10)])
    jobs = await put_many(store, 5, limit_key="api")
    assert await taken(store) == jobs[:2]
    clock.advance(9)
    assert await taken(store) == []
    clock.advance(2)
    assert await taken(store) == jobs[2:4]


async def test_a_rate_counts_starts_though_the_jobs_have_ended(store: Store) -> None:
    await store.define_limits([Limit("api", rate=1, per_seconds=10)])
    await settle(store, await put_and_take(store, limit_key="api"))
    await put(store, limit_key="api")
    assert await taken(store) == []


UNSTARTED = [(Outcome.RELEASE, 0.0), (Outcome.RELEASE, 60.0), (Outcome.CANCELLED, 0.0)]


@pytest.mark.parametrize(("outcome", "delay"), UNSTARTED)
async def test_a_job_given_back_unstarted_does_not_count_against_its_rate(
    store: Store, clock: FakeClock, outcome: Outcome, delay: float
) -> None:
    await store.define_limits([Limit("api", rate=3, per_seconds=3_600)])
    await put_many(store, 8, limit_key="api")
    first, second, third = await store.claim("default", ANN, 10)
    await settle(store, first, seconds=0.5)
    clock.advance(1)
    for unstarted in (second, third):
        await settle(store, unstarted, outcome, seconds=None, delay_seconds=delay)
    assert len(await taken(store)) == 2, "both starts are free again, and that of the job that ran is not"
    assert await taken(store) == []


async def test_a_release_takes_back_its_own_start_only(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", rate=2, per_seconds=10)])
    first = await put_and_take(store, limit_key="api")
    clock.advance(6)
    second = await put_and_take(store, limit_key="api")
    await settle(store, first)
    await settle(store, second, Outcome.RELEASE, seconds=None)
    assert await taken(store) == [second.id]
    clock.advance(5)
    third = await put(store, limit_key="api")
    assert await taken(store) == [third], "the first start is over"
    await put(store, limit_key="api")
    assert await taken(store) == []


async def test_a_job_given_back_after_it_started_counts_against_its_rate(store: Store) -> None:
    await store.define_limits([Limit("api", rate=1, per_seconds=10)])
    claimed = await put_and_take(store, limit_key="api")
    await settle(store, claimed, Outcome.RELEASE, seconds=0.0)
    assert await taken(store) == []


async def test_each_claim_of_a_job_counts_though_the_clock_stands_still(store: Store) -> None:
    await store.define_limits([Limit("api", rate=2, per_seconds=10)])
    first = await put_and_take(store, limit_key="api")
    await settle(store, first, Outcome.RETRY)
    assert await taken(store) == [first.id]
    await put(store, limit_key="api")
    assert await taken(store) == [], "the rate is used up"


async def test_an_unstarted_claim_leaves_the_start_of_an_earlier_attempt_at_the_same_time(store: Store) -> None:
    await store.define_limits([Limit("api", rate=2, per_seconds=10)])
    first = await put_and_take(store, limit_key="api")
    await settle(store, first, Outcome.RETRY)
    (again,) = await store.claim("default", ANN, 10)
    await settle(store, again, Outcome.CANCELLED, seconds=None)
    jobs = await put_many(store, 2, limit_key="api")
    assert await taken(store) == jobs[:1], "the first attempt did start"


async def test_a_lost_claim_counts_against_its_rate(store: Store, clock: FakeClock) -> None:
    """It is unknown whether the job of a dead worker had started."""
    await store.define_limits([Limit("api", rate=1, per_seconds=60)])
    await put_and_take(store, limit_key="api")
    clock.advance(31)
    assert len(await store.rescue(10, {}, str)) == 1
    assert await taken(store) == []


async def test_only_the_owner_can_take_a_start_back(store: Store) -> None:
    await store.define_limits([Limit("api", rate=1, per_seconds=60)])
    claimed = await put_and_take(store, limit_key="api")
    lost = await store.settle(BEN, [end(claimed, Outcome.RELEASE, seconds=None)])
    assert lost == [claimed.id]
    await put(store, limit_key="api")
    assert await taken(store) == []


async def test_a_cancelled_job_that_never_started_says_so(store: Store) -> None:
    claimed = await put_and_take(store)
    await settle(store, claimed, Outcome.CANCELLED, seconds=None)
    assert (await record(store, claimed.id)).started_at is None


@pytest.mark.parametrize("days", [2, 7])
async def test_a_rate_over_days_is_remembered(store: Store, clock: FakeClock, days: int) -> None:
    await store.define_limits([Limit("api", rate=1, per_seconds=days * 86_400)])
    await settle(store, await put_and_take(store, limit_key="api"))
    await put(store, limit_key="api")
    for _ in range(days):
        clock.advance(days=1, seconds=-1)
        await store.prune({}, 100)
        assert await taken(store) == []
    clock.advance(days=1)
    assert len(await taken(store)) == 1


async def test_a_rate_holds_in_any_window_not_in_steps(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", rate=2, per_seconds=10)])
    await put_many(store, 60, limit_key="api")
    starts: list[int] = []
    for second in range(60):
        starts += [second] * len(await taken(store))
        clock.advance(1)
    worst = max(sum(1 for start in starts if begin <= start < begin + 10) for begin in range(60))
    assert worst == 2
    assert len(starts) >= 10


async def test_a_rate_holds_for_every_part_on_its_own(store: Store) -> None:
    await store.define_limits([Limit("api", rate=1, per_seconds=10)])
    jobs = [await put(store, limit_key=key) for key in ("api:a", "api:a", "api:b")]
    assert await taken(store) == [jobs[0], jobs[2]]


async def test_concurrency_and_rate_hold_together(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1, rate=2, per_seconds=10)])
    await put_many(store, 4, limit_key="api")
    for _ in range(2):
        (claimed,) = await store.claim("default", ANN, 10)
        await settle(store, claimed)
    assert await taken(store) == []
    clock.advance(11)
    assert len(await taken(store)) == 1
    clock.advance(11)
    assert await taken(store) == []


async def test_the_most_urgent_of_a_limited_key_goes_first(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await put(store, limit_key="api", priority=5)
    urgent = await put(store, limit_key="api", priority=1)
    assert await taken(store) == [urgent]


async def test_limits_of_many_keys_hold_in_one_claim(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=2)])
    await store.enqueue([job for part in range(50) for job in new_jobs(4, limit_key=f"api:{part}")])
    assert len(await taken(store, limit=200)) == 100


async def test_every_free_key_is_reached_however_many_are_full(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await store.enqueue([job for part in range(600) for job in new_jobs(2, limit_key=f"api:{part:03}")])
    claimed: list[str] = []
    for _ in range(12):
        claimed += await taken(store, limit=100)
    assert len(claimed) == 600


@pytest.mark.parametrize("blocked", ["concurrency", "rate", "pause"])
async def test_a_free_key_is_found_behind_a_thousand_full_ones(store: Store, blocked: str) -> None:
    limits = {
        "concurrency": Limit("api", concurrency=1),
        "rate": Limit("api", rate=1, per_seconds=600),
        "pause": Limit("api"),
    }
    await store.define_limits([limits[blocked]])
    keys = [f"api:{part:04}" for part in range(1_000)]
    if blocked == "pause":
        await store.pause_key("api", 600)
    else:
        await store.enqueue([job for key in keys for job in new_jobs(1, limit_key=key)])
        while await taken(store, limit=1_000):
            pass
    await store.enqueue([job for key in keys for job in new_jobs(1, limit_key=key)])
    assert await taken(store, BEN) == []
    free = await put(store, limit_key="zebra")
    found = [job for _ in range(2) for job in await taken(store, BEN)]
    assert found == [free]


async def test_a_free_key_is_found_within_few_claims_behind_any_number_of_full_ones(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    await store.pause_key("api", 600)
    await store.enqueue([job for part in range(9_000) for job in new_jobs(1, limit_key=f"api:{part}")])
    first, last = [await put(store, limit_key=key) for key in ("aardvark", "zebra")]
    found = [job for _ in range(4) for job in await taken(store)]
    assert sorted(found) == sorted([first, last])


async def test_a_paused_key_starts_nothing_until_its_pause_is_over(store: Store, clock: FakeClock) -> None:
    job_id, free = await put(store, limit_key="api"), await put(store)
    await store.pause_key("api", 60)
    assert await taken(store) == [free]
    clock.advance(59)
    assert await taken(store) == []
    clock.advance(2)
    assert await taken(store) == [job_id]


async def test_a_limit_that_never_holds_anything_back_can_be_paused(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1_000)])
    jobs = await put_many(store, 5, limit_key="api")
    assert await taken(store, limit=2) == jobs[:2]
    await store.pause_key("api", 60)
    assert await taken(store) == []
    clock.advance(61)
    assert await taken(store) == jobs[2:]


async def test_a_paused_name_pauses_all_its_parts(store: Store) -> None:
    await put(store, limit_key="api:a")
    await put(store, limit_key="api")
    free = await put(store, limit_key="apis:a")
    await store.pause_key("api", 60)
    assert await taken(store) == [free]


async def test_a_paused_part_pauses_itself_only(store: Store) -> None:
    paused, other_part, whole = [await put(store, limit_key=key) for key in ("api:a", "api:b", "api")]
    await store.pause_key("api:a", 60)
    assert await taken(store) == [other_part, whole]
    assert paused not in await taken(store)


async def test_a_longer_pause_stays(store: Store, clock: FakeClock) -> None:
    job_id = await put(store, limit_key="api")
    await store.pause_key("api", 60)
    await store.pause_key("api", 5)
    clock.advance(30)
    assert await taken(store) == []
    clock.advance(31)
    assert await taken(store) == [job_id]


async def test_a_shorter_pause_is_prolonged(store: Store, clock: FakeClock) -> None:
    await put(store, limit_key="api")
    await store.pause_key("api", 5)
    await store.pause_key("api", 60)
    clock.advance(30)
    assert await taken(store) == []


async def test_a_pause_is_seen_by_every_process(store: Store, other: Store) -> None:
    await put(store, limit_key="api")
    await other.pause_key("api", 60)
    assert await taken(store) == []


async def test_a_pause_leaves_running_jobs_alone(store: Store) -> None:
    claimed = await put_and_take(store, limit_key="api")
    await store.pause_key("api", 60)
    await settle(store, claimed)


async def test_a_delayed_job_obeys_its_limit_when_it_is_due(store: Store, clock: FakeClock) -> None:
    await store.define_limits([Limit("api", concurrency=1)])
    jobs = await put_many(store, 3, limit_key="api", delay_seconds=60)
    clock.advance(61)
    assert await taken(store) == jobs[:1]


async def test_claims_do_not_take_more_than_asked_for_a_limited_key(store: Store) -> None:
    await store.define_limits([Limit("api", concurrency=10)])
    await put_many(store, 10, limit_key="api")
    assert len(await taken(store, limit=3)) == 3
    assert len(await taken(store, limit=100)) == 7

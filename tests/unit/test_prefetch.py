"""Prefetch: how many jobs a consumer claims, depending on the speed of its runners and its store."""

from __future__ import annotations

import pytest

from rowlock.jobs.worker.prefetch import Prefetch

CONCURRENCY = 10
MOST = 4_000
QUICK, SLOW = 0.000_01, 5.0
AT_ONCE = 0.001  # what a claim takes, however many it brings


def ahead_of(handler_seconds: float, jobs: int = 200) -> Prefetch:
    """Return a prefetch after this many jobs of this duration, and claims that found as many jobs as they asked for."""
    made = Prefetch(CONCURRENCY, MOST)
    learn(made, handler_seconds, jobs)
    return made


def learn(ahead: Prefetch, handler_seconds: float, jobs: int = 200) -> None:
    for _ in range(jobs):
        ahead.ended(handler_seconds)
    for _ in range(8):
        asked = max(1, ahead.room(free=1, buffered=0, unsettled=0))
        ahead.received(asked, 20 * asked, 0.0)
        ahead.filled(asked, AT_ONCE)


def test_the_first_claim_is_for_the_runners_and_as_many_again() -> None:
    assert Prefetch(CONCURRENCY, MOST).room(free=CONCURRENCY, buffered=0, unsettled=0) == 2 * CONCURRENCY


def test_quick_jobs_are_claimed_by_the_thousand_half_at_a_time() -> None:
    assert ahead_of(QUICK).room(free=0, buffered=0, unsettled=0) == MOST // 2


def test_slow_jobs_are_claimed_one_by_one() -> None:
    assert ahead_of(SLOW).room(free=1, buffered=0, unsettled=0) == 1
    assert ahead_of(SLOW).room(free=0, buffered=1, unsettled=0) == 0


def test_a_consumer_grows_step_by_step_and_not_after_its_first_job() -> None:
    ahead = Prefetch(CONCURRENCY, MOST)
    ahead.ended(QUICK)
    ahead.filled(CONCURRENCY, AT_ONCE)
    assert ahead.room(free=0, buffered=0, unsettled=0) == 4 * CONCURRENCY


def test_after_slow_jobs_quick_ones_are_claimed_ahead_again() -> None:
    ahead = ahead_of(SLOW)
    learn(ahead, QUICK, jobs=400)
    assert ahead.room(free=0, buffered=0, unsettled=0) == MOST // 2


TICK = 0.2


def look(
    ahead: Prefetch, buffered: int, starts_per_second: float, seconds: float, now: float = 100.0
) -> tuple[int, float]:
    """Watch a consumer that starts this many jobs per second and gets none: what it releases first, and when."""
    begun, left = now, float(buffered)
    ahead.received(buffered, 20 * buffered, now)
    while now < begun + seconds:
        now += TICK
        left = max(0.0, left - starts_per_second * TICK)
        if surplus := ahead.surplus(now, int(left)):
            return surplus, now - begun
    return 0, seconds


def test_after_a_release_only_free_runners_get_jobs_until_these_are_quick() -> None:
    ahead = ahead_of(QUICK)
    assert look(ahead, MOST, 0, 2.0)[0] > 0
    assert ahead.room(free=3, buffered=0, unsettled=0) == 3
    learn(ahead, QUICK, jobs=400)
    assert ahead.room(free=0, buffered=0, unsettled=0) == MOST // 2


@pytest.mark.parametrize(("starts_per_second", "kept"), [(0, 0), (20, 4), (200, 40)])
def test_what_exceeds_a_second_of_the_present_work_is_released_within_a_second(
    starts_per_second: float, kept: int
) -> None:
    surplus, seconds = look(ahead_of(QUICK), MOST, starts_per_second, 2.0)
    assert seconds <= 0.8
    started = starts_per_second * seconds
    assert surplus == pytest.approx(MOST - started - kept, abs=2 + starts_per_second * TICK)


def test_starts_of_slow_jobs_do_not_keep_what_waits_behind_them() -> None:
    """As many as a runner each: too few to be more than a second of work, until the first has waited so long."""
    surplus, seconds = look(ahead_of(QUICK), CONCURRENCY, 2, 3.0)
    assert surplus > 0
    assert 1.0 <= round(seconds, 1) <= 1.2


def test_quick_jobs_are_kept() -> None:
    assert look(ahead_of(QUICK), MOST, 5_000, 1.0) == (0, 1.0)


def test_jobs_that_have_just_come_to_an_idle_consumer_are_kept() -> None:
    ahead = ahead_of(QUICK)
    for tick in range(10):
        assert ahead.surplus(90 + tick, 0) == 0
    ahead.received(MOST, 20 * MOST, 100.0)
    assert ahead.surplus(100.1, MOST) == 0
    assert ahead.surplus(100.3, MOST - 1_000) == 0


def test_no_more_is_claimed_while_most_of_it_is_there() -> None:
    ahead = ahead_of(QUICK)
    assert ahead.room(free=0, buffered=MOST, unsettled=0) == 0
    assert ahead.room(free=0, buffered=MOST * 3 // 4, unsettled=0) == MOST // 4


def test_what_is_done_comes_before_what_is_new() -> None:
    ahead = ahead_of(QUICK)
    assert ahead.room(free=CONCURRENCY, buffered=0, unsettled=MOST // 2) > 0
    assert ahead.room(free=CONCURRENCY, buffered=0, unsettled=MOST // 2 + 1) == 0


@pytest.mark.parametrize("unsettled", [0, CONCURRENCY])
def test_a_few_that_are_not_settled_keep_nobody_waiting(unsettled: int) -> None:
    assert ahead_of(SLOW).room(free=1, buffered=0, unsettled=unsettled) == 1


def test_large_payloads_are_claimed_by_their_size() -> None:
    ahead = ahead_of(QUICK)
    ahead.received(10, 10 * 1_048_576, 0.0)
    assert ahead.room(free=0, buffered=0, unsettled=0) == 32


def test_a_store_that_is_slow_is_not_asked_for_more_than_it_hands_out_soon() -> None:
    ahead = Prefetch(CONCURRENCY, MOST)
    for _ in range(200):
        ahead.ended(QUICK)
    for _ in range(8):
        ahead.filled(100, 1.0)
    assert ahead.room(free=0, buffered=0, unsettled=0) == CONCURRENCY


def test_calls_that_take_many_jobs_are_given_as_many() -> None:
    ahead = ahead_of(SLOW)
    ahead.unit = 1_000
    assert ahead.room(free=2, buffered=0, unsettled=0) == MOST // 2
    ahead.unit = 3_000
    assert ahead.room(free=2, buffered=0, unsettled=0) == 3_000

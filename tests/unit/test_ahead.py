"""Ahead: how many jobs a lane claims, given how quick its runners and its store are."""

from __future__ import annotations

import pytest

from rowlock.jobs.ahead import Ahead

CONCURRENCY = 10
MOST = 4_000
QUICK, SLOW = 0.000_01, 5.0
AT_ONCE = 0.001  # what a claim takes, however many it brings


def ahead_of(handler_seconds: float, jobs: int = 200) -> Ahead:
    """After so many jobs that took so long, and claims that found all they asked for."""
    made = Ahead(CONCURRENCY, MOST)
    learn(made, handler_seconds, jobs)
    return made


def learn(ahead: Ahead, handler_seconds: float, jobs: int = 200) -> None:
    for _ in range(jobs):
        ahead.ended(handler_seconds)
    for _ in range(8):
        asked = max(1, ahead.room(free=1, buffered=0, unsettled=0))
        ahead.received(asked, 20 * asked)
        ahead.filled(asked, AT_ONCE)


def test_the_first_claim_is_for_the_runners_and_as_many_again() -> None:
    assert Ahead(CONCURRENCY, MOST).room(free=CONCURRENCY, buffered=0, unsettled=0) == 2 * CONCURRENCY


def test_quick_jobs_are_claimed_by_the_thousand_half_at_a_time() -> None:
    assert ahead_of(QUICK).room(free=0, buffered=0, unsettled=0) == MOST // 2


def test_slow_jobs_are_claimed_one_by_one() -> None:
    assert ahead_of(SLOW).room(free=1, buffered=0, unsettled=0) == 1
    assert ahead_of(SLOW).room(free=0, buffered=1, unsettled=0) == 0


def test_a_lane_grows_step_by_step_and_not_after_its_first_job() -> None:
    ahead = Ahead(CONCURRENCY, MOST)
    ahead.ended(QUICK)
    ahead.filled(CONCURRENCY, AT_ONCE)
    assert ahead.room(free=0, buffered=0, unsettled=0) == 4 * CONCURRENCY


def test_after_slow_jobs_quick_ones_are_claimed_ahead_again() -> None:
    ahead = ahead_of(SLOW)
    learn(ahead, QUICK, jobs=400)
    assert ahead.room(free=0, buffered=0, unsettled=0) == MOST // 2


def test_after_a_wait_in_vain_only_free_runners_get_jobs_until_these_are_quick() -> None:
    ahead = ahead_of(QUICK)
    ahead.waited(1.0)
    assert ahead.room(free=3, buffered=0, unsettled=0) == 3
    learn(ahead, QUICK, jobs=400)
    assert ahead.room(free=0, buffered=0, unsettled=0) == MOST // 2


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
    ahead.received(10, 10 * 1_048_576)
    assert ahead.room(free=0, buffered=0, unsettled=0) == 32


def test_a_store_that_is_slow_is_not_asked_for_more_than_it_hands_out_soon() -> None:
    ahead = Ahead(CONCURRENCY, MOST)
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

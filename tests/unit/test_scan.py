"""Where the next claim of a PostgreSQL worker starts: at the head, unless that has become slow."""

from __future__ import annotations

import pytest

from rowlock.storage.postgres import scan as module
from rowlock.storage.postgres.scan import HEAD, ROUNDS_AT_MOST, Scan


class Time:
    """A clock of the test's own, for how long a claim took."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(module, "time", time)
    return time


def claim(
    scan: Scan, time: Time, took: float, claimed: int = 100, asked: int = 100, last: tuple[int, int] = (100, 500)
) -> tuple[tuple[int, int], bool]:
    """One claim: where it looked from, and whether it must be made again."""
    place = scan.start()
    time.now += took
    return place, scan.end(claimed, asked, last, None)


def test_claims_look_from_the_head_as_long_as_they_are_quick(time: Time) -> None:
    scan = Scan()
    for number in range(50):
        assert claim(scan, time, 0.005, last=(100, 100 * number)) == (HEAD, False)


def test_after_a_slow_claim_the_next_ones_go_on_from_its_end_for_a_while(time: Time) -> None:
    scan = Scan()
    claim(scan, time, 0.005)
    assert claim(scan, time, 0.200, last=(100, 200)) == (HEAD, False)
    assert claim(scan, time, 0.005, last=(100, 300)) == ((100, 200), False)
    assert claim(scan, time, 0.005, last=(100, 400)) == ((100, 300), False)
    time.now += 5 * 0.200
    assert claim(scan, time, 0.005) == (HEAD, False)


def test_a_place_never_goes_back(time: Time) -> None:
    scan = Scan()
    claim(scan, time, 0.005)
    claim(scan, time, 0.200, last=(100, 900))
    claim(scan, time, 0.001, last=(100, 300))
    assert scan.start() == (100, 900)


def test_an_empty_claim_past_the_head_is_made_again_from_the_head(time: Time) -> None:
    scan = Scan()
    claim(scan, time, 0.005)
    claim(scan, time, 0.200, last=(100, 200))
    assert claim(scan, time, 0.001, claimed=0, last=(0, 0)) == ((100, 200), True)
    assert claim(scan, time, 0.001, claimed=0, last=(0, 0)) == (HEAD, False), "once is enough"


def test_a_claim_that_found_less_than_asked_sends_the_next_to_the_head(time: Time) -> None:
    scan = Scan()
    claim(scan, time, 0.005)
    claim(scan, time, 0.200, last=(100, 200))
    assert claim(scan, time, 0.001, claimed=60, last=(100, 260)) == ((100, 200), False)
    assert scan.start() == HEAD


def test_small_claims_say_nothing_about_speed(time: Time) -> None:
    scan = Scan()
    for _ in range(5):
        assert claim(scan, time, 0.500, claimed=10, asked=10) == (HEAD, False)


def test_the_first_claim_sets_what_is_usual(time: Time) -> None:
    scan = Scan()
    claim(scan, time, 0.200)
    assert scan.start() == HEAD


def test_the_next_claim_goes_on_after_the_last_limit_key_looked_at(time: Time) -> None:
    scan = Scan()
    scan.start()
    assert not scan.end(1, 100, (100, 1), "api:acme")
    assert scan.key == "api:acme"
    scan.start()
    assert not scan.end(1, 100, (100, 2), None), "it looked at all keys"
    assert scan.key == ""


def test_a_claim_that_finds_only_full_keys_goes_on_a_few_times(time: Time) -> None:
    scan = Scan()
    for _ in range(2):
        again = []
        for number in range(ROUNDS_AT_MOST):
            scan.start()
            again.append(scan.end(0, 100, (0, 0), f"api:{number}"))
        assert again == [True] * (ROUNDS_AT_MOST - 1) + [False]

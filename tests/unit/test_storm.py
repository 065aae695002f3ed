"""Failure storms: which failures of a worker get their own record."""

from __future__ import annotations

from itertools import count

from rowlock.ids import uuid7
from rowlock.jobs.worker.failure_storms import KINDS_MAX, WINDOW_SECONDS, Storms
from rowlock.storage.records import Failed, Outcome, Settlement

_numbers = count()


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def failed(reason: str = "ValueError: no", outcome: Outcome = Outcome.RETRY, type: str = "a") -> Settlement:
    failure = Failed(uuid7(), "{}", "Traceback")
    return Settlement(uuid7(), next(_numbers), outcome, error=reason, type=type, queue="q", failure=failure)


def records(storms: Storms, ends: list[Settlement], company_id: str | None = None) -> list[str]:
    """The failure records of these, each once, in order; those that are counted end with +."""
    found = []
    for given in ends:
        end = storms.sampled(given, company_id)
        assert end.failure is not None
        assert given.failure is not None
        assert (end.failure.counted, end.failure.id) == (False, given.failure.id) or end.failure.counted
        assert end._replace(failure=given.failure) == given
        found.append(end.failure.id + "+" * end.failure.counted)
    return list(dict.fromkeys(found))


def test_the_first_failures_of_a_minute_have_records_of_their_own_and_all_others_share_one() -> None:
    storms = Storms(5, Clock())
    ids = records(storms, [failed() for _ in range(1_000)])
    assert [id.endswith("+") for id in ids] == [False] * 5 + [True]


def test_a_storm_that_goes_on_has_one_record_a_minute() -> None:
    clock = Clock()
    storms = Storms(5, clock)
    records(storms, [failed() for _ in range(100)])
    seen = set()
    for _ in range(10):
        clock.now += WINDOW_SECONDS
        (shared,) = records(storms, [failed() for _ in range(100)])
        assert shared.endswith("+")
        seen.add(shared)
    assert len(seen) == 10


def test_a_storm_is_over_after_a_minute_with_few_failures_or_none() -> None:
    clock = Clock()
    storms = Storms(5, clock)
    records(storms, [failed() for _ in range(6)])
    clock.now += 2 * WINDOW_SECONDS
    assert not records(storms, [failed()])[0].endswith("+")
    records(storms, [failed() for _ in range(6)])
    clock.now += WINDOW_SECONDS
    assert records(storms, [failed() for _ in range(5)])[0].endswith("+")
    clock.now += WINDOW_SECONDS
    ids = records(storms, [failed() for _ in range(5)])
    assert [id.endswith("+") for id in ids] == [False] * 5


def test_few_failures_have_records_of_their_own_for_ever() -> None:
    clock = Clock()
    storms = Storms(5, clock)
    for _ in range(100):
        assert len(records(storms, [failed() for _ in range(5)])) == 5
        clock.now += WINDOW_SECONDS


def test_failures_are_identical_but_for_the_numbers_in_them() -> None:
    storms = Storms(1, Clock())
    reasons = [
        "ConnectError: 10.0.0.7:5432 refused after 3.1 s",
        "ConnectError: 10.0.0.9:5433 refused after 12 s",
        f"ConnectError: {uuid7()} refused after 0x7f3a s",
    ]
    assert len(records(storms, [failed(reason) for reason in reasons])) == 1 + 1
    others = [failed("ConnectError: refused"), failed("TypeError: no"), failed(reasons[0], type="b")]
    assert not any(id.endswith("+") for id in records(storms, others))
    assert not records(storms, [failed(reasons[0])], company_id="acme")[0].endswith("+"), "companies share no record"


def test_the_end_of_a_job_has_its_own_record_in_any_storm() -> None:
    storms = Storms(1, Clock())
    records(storms, [failed() for _ in range(10)])
    for end in (failed(outcome=Outcome.FAILED), failed(outcome=Outcome.FATAL), failed(outcome=Outcome.CRASH)):
        assert storms.sampled(end, None) is end
    done = Settlement(uuid7(), 1)
    assert storms.sampled(done, None) is done


def test_a_worker_remembers_a_bounded_number_of_kinds() -> None:
    storms = Storms(1, Clock())
    for number in range(3 * KINDS_MAX):
        storms.sampled(failed(type=f"type{number}"), None)
    assert len(storms._windows) <= KINDS_MAX

"""The outcomes of attempts whose worker process died."""

from __future__ import annotations

from conformance.builders import ANN
from rowlock.jobs.outcome import after_death
from rowlock.storage.records import Held, Outcome


def held(job_id: str) -> Held:
    return Held(job_id, 3, ANN, 1, 5, 0, False, "a", "default")


def test_an_attempt_that_ended_with_its_process_took_as_long_as_it_ran() -> None:
    (end,) = after_death([held("one")], {("one", 3): 12.5}, 3, "killed")
    assert (end.outcome, end.seconds) == (Outcome.CRASH, 12.5)


def test_suspects_took_as_long_as_they_ran() -> None:
    ends = after_death([held("one"), held("two")], {("one", 3): 12.5, ("two", 3): 1.5}, 3, "killed")
    assert [(end.outcome, end.seconds) for end in ends] == [(Outcome.SUSPECT, 12.5), (Outcome.SUSPECT, 1.5)]


def test_what_had_not_begun_goes_back_and_counts_as_a_start() -> None:
    """It may have run and not been settled: nobody is left to tell."""
    (end,) = after_death([held("one")], {("one", 2): 12.5}, 3, "killed")
    assert (end.outcome, end.seconds) == (Outcome.RELEASE, 0.0)

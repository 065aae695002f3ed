"""Which statements of PostgreSQL are not waited for any longer than a busy store may take."""

from __future__ import annotations

import pytest

from rowlock.storage.postgres.connection import _TIMEOUTS, BUSY_SECONDS, SQL


@pytest.mark.parametrize(
    "verb",
    ["claim", "settle", "take_call", "end_call", "rest_calls", "hold_subjects", "mark_subjects", "free_subjects"],
)
def test_a_verb_that_a_running_job_waits_for_has_a_time_limit(verb: str) -> None:
    assert verb in SQL
    assert _TIMEOUTS[verb] == BUSY_SECONDS


def test_every_time_limit_is_of_a_statement() -> None:
    assert _TIMEOUTS.keys() <= SQL.keys()

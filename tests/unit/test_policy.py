"""What a job type and a queue may declare."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rowlock import Backoff, QueueProfile, Rowlock, SettingsError, Unique
from rowlock.storage.records import OnConflict


def test_the_documented_backoffs() -> None:
    assert [Backoff().delay_seconds(n) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
    sync = Backoff(base_seconds=60, factor=2, max_seconds=3600)
    assert [sync.delay_seconds(n) / 60 for n in range(1, 7)] == [2, 4, 8, 16, 32, 60]


def test_a_backoff_never_exceeds_its_maximum_however_many_failures() -> None:
    assert Backoff(factor=10).delay_seconds(1_000) == 60
    assert Backoff(factor=1e200).delay_seconds(999) == 60
    assert Backoff(base_seconds=0).delay_seconds(5) == 0
    assert Backoff(base_seconds=90).delay_seconds(1) == 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 1_001},
        {"base_seconds": -1},
        {"factor": 0.5},
        {"max_seconds": -1},
        {"base_seconds": math.nan},
        {"factor": math.nan},
        {"max_seconds": math.nan},
        {"max_seconds": math.inf},
    ],
    ids=repr,
)
def test_a_backoff_out_of_its_limits_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="Backoff"):
        Backoff(**wrong)


def test_unique_policies_say_what_they_mean() -> None:
    assert Unique.forever() == Unique("forever", None, OnConflict.REJECT, None)
    assert Unique.while_active(on_conflict="return_existing").on_conflict is OnConflict.RETURN_EXISTING
    assert Unique.window(5, key="k") == Unique("window", 5, OnConflict.REJECT, "k")
    for seconds in (0, -1, math.nan):
        with pytest.raises(SettingsError, match="window"):
            Unique.window(seconds)
    with pytest.raises(ValueError, match="explode"):
        Unique.forever(on_conflict="explode")


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"poll_seconds": 0},
        {"poll_seconds": -1},
        {"visibility_seconds": 0},
        {"rescue_delay_seconds": -1},
        {"buffer_max": -1},
        {"size_max": 0},
    ],
    ids=repr,
)
def test_a_queue_profile_out_of_its_limits_is_refused(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    with pytest.raises(SettingsError, match=field):
        Rowlock("sqlite:///unused.db").queue("q", **wrong)


def test_a_queue_profile_is_what_was_declared() -> None:
    app = Rowlock("sqlite:///unused.db")
    assert app.queue("q", concurrency=2, buffer_max=0) == QueueProfile("q", concurrency=2, buffer_max=0)
    with pytest.raises(SettingsError, match="queue"):
        app.queue("")

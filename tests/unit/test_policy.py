"""The options of job types and queues."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rowlock import Backoff, QueueProfile, Rowlock, SettingsError, Unique
from rowlock.jobs import policy
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
    ("jitter", "least"), [(None, 0.9), (0.0, 1.0), (0.25, 0.75), (1.0, 0.0)], ids=["default", "none", "some", "full"]
)
def test_jitter_shortens_a_wait_and_never_exceeds_it(
    monkeypatch: pytest.MonkeyPatch, jitter: float | None, least: float
) -> None:
    backoff = Backoff(base_seconds=60, max_seconds=3600, **({} if jitter is None else {"jitter": jitter}))
    for attempt in range(1, 8):
        longest = backoff.delay_seconds(attempt)
        assert longest * least <= backoff.wait_seconds(attempt) <= longest
        for drawn, share in ((0.0, 1.0), (0.5, (1 + least) / 2), (1.0, least)):
            with monkeypatch.context() as patched:
                patched.setattr(policy, "chance", lambda: drawn)  # noqa: B023
                assert backoff.wait_seconds(attempt) == pytest.approx(longest * share)


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    assert len({Backoff().wait_seconds(3) for _ in range(100)}) > 90


@pytest.mark.parametrize(
    "wrong",
    [
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
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


def test_a_key_without_a_policy_that_uses_it_is_refused() -> None:
    assert Unique.parse("none") == Unique.none()
    with pytest.raises(SettingsError, match="takes no key"):
        Unique.parse("none", key="k")


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

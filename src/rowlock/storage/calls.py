"""Records of outbound calls: limits, budgets, and marks on subjects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rowlock.errors import KEY_LENGTH_MAX

PermitId = str
"""A UUID chosen by the caller, one per call."""

Marks = dict[str, str]
"""For each property, the mark of its last writer."""

EXACT_SECONDS_MAX = 60.0
EXACT_COUNT_MAX = 1_000
STEPS = 100
_YEAR_SECONDS = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class CallLimit:
    """At most `count` calls of this key in any window of `seconds`."""

    key: str
    count: int
    seconds: float

    @property
    def step_seconds(self) -> float:
        """0 if each call keeps its own time; else the step of the sums: calls count up to one step longer."""
        if self.seconds <= EXACT_SECONDS_MAX and self.count <= EXACT_COUNT_MAX:
            return 0.0
        return self.seconds / STEPS


@dataclass(frozen=True, slots=True)
class CallBudget:
    """The state of a key."""

    key: str
    in_use: int  # calls that count now: running, or ended within the seconds of their limit
    rests_until: datetime | None  # None: it is not blocked


@dataclass(frozen=True, slots=True)
class SyncCounts:
    """The state of some queues."""

    pending: int  # waiting, without a failed attempt
    processing: int
    retrying: int  # waiting after a failed attempt
    dead: int
    completed_24h: int
    mean_ms: float | None  # of jobs that succeeded in 24 hours; None: none did
    lag_seconds: float | None  # age of the oldest ready job; None: none is ready


def checked_limits(limits: Sequence[CallLimit]) -> list[CallLimit]:
    """Returns the limits by key, the order in which they are taken; raises ValueError for invalid or duplicate ones."""
    for limit in limits:
        checked_key(limit.key)
        if limit.count < 1 or not 0 < limit.seconds <= _YEAR_SECONDS:
            raise ValueError(
                f"limit {limit.key!r} must allow at least one call per window, and the window can be up to a year"
            )
    if len({limit.key for limit in limits}) < len(limits):
        raise ValueError("a call counts once for each of its limits: give each limit its own key")
    return sorted(limits, key=lambda limit: limit.key)


def checked_key(key: str) -> str:
    """Returns the key of a limit; raises ValueError if it is invalid."""
    if not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        raise ValueError(f"the key of a limit must be 1 to {KEY_LENGTH_MAX} printable characters, not {key[:300]!r}")
    return key


def checked_seconds(seconds: float) -> float:
    """Returns a duration, capped at a year; raises ValueError unless it is finite and not negative."""
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{seconds} is not a number of seconds")
    return min(float(seconds), _YEAR_SECONDS)


def ended(permit_id: PermitId) -> ValueError:
    return ValueError(f"call {permit_id} has ended: use a new id for each call")


def kept_keys(keys: Iterable[str]) -> dict[str, str]:
    """Maps each subject key in its stored form to the key given. A key can be any text of any length."""
    return {_kept_key(key): key for key in keys}


def _kept_key(key: str) -> str:
    kept = kept_text(key)
    if len(kept) <= KEY_LENGTH_MAX:
        return kept
    return f"\\sha256 {hashlib.sha256(kept.encode()).hexdigest()}"


def kept_text(text: str) -> str:
    """Returns the text in a form that every store can keep: NUL and lone surrogates are escaped as in JSON."""
    plain = "\\" not in text and text.isprintable()
    return text if plain else json.dumps(text)[1:-1]


def given_text(kept: str) -> str:
    """Returns the original text of `kept_text`."""
    return str(json.loads(f'"{kept}"')) if "\\" in kept else kept


def kept_marks(marks: Mapping[str, str]) -> Marks:
    return {kept_text(property): mark for property, mark in marks.items()}


def given_marks(marks: Mapping[str, str]) -> Marks:
    return {given_text(property): mark for property, mark in marks.items()}


def later_marks(before: Mapping[str, str], told: Mapping[str, str]) -> Marks:
    """Merges both; of two marks of one property the greater stays."""
    return {**before, **{property: max(mark, before.get(property, mark)) for property, mark in told.items()}}

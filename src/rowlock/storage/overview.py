"""What passes between the engine and a store for those who look: what runs, what died of what, how the hours were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rowlock.storage.records import JobId, WorkerId

REASON_LENGTH_MAX = 200
HISTORY_MINUTES_MAX = 24 * 60
MINUTE = timedelta(minutes=1)


def reason_of(error: str | None) -> str:
    """What failed jobs are grouped by: the first line of the error, without the count of attempts, and not too long."""
    return (error or "").partition("\n")[0].partition(" (attempt ")[0][:REASON_LENGTH_MAX]


class Running(NamedTuple):
    """A job that runs, without its data."""

    id: JobId
    type: str
    queue: str
    company_id: str | None
    owner: WorkerId
    attempt: int
    started_at: datetime
    progress: int | None
    message: str | None


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Failed jobs of one type that failed for the same reason."""

    type: str
    reason: str  # see reason_of
    count: int
    first_at: datetime  # when the first of them failed for good
    last_at: datetime
    sample_id: JobId  # the newest


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """Failed jobs by type and reason, the largest group first."""

    groups: list[DeadGroup]
    looked_at: int  # how many jobs are in them, and in those groups that did not fit


class Minute(NamedTuple):
    """What happened to the jobs of one queue in one minute."""

    minute: datetime
    queue: str
    succeeded: int
    failed: int  # for good
    failures: int  # attempts


@dataclass(frozen=True, slots=True)
class History:
    """The last minutes: what happened, and how long the oldest ready job of each queue had waited."""

    now: datetime  # the minute that has not ended
    minutes: Sequence[Minute]
    lags: Mapping[datetime, Mapping[str, float]]  # only minutes in which somebody looked, and queues that had some

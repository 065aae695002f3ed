"""Records of the dashboard: running jobs, groups of failed jobs, and the history per minute."""

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
    """Returns the key that groups failed jobs: the first line of the error without the attempt count, shortened."""
    return (error or "").partition("\n")[0].partition(" (attempt ")[0][:REASON_LENGTH_MAX]


class Running(NamedTuple):
    """A running job, without its payload."""

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
    first_at: datetime  # the first final failure
    last_at: datetime
    sample_id: JobId  # the newest


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """Failed jobs by type and reason, the largest group first."""

    groups: list[DeadGroup]
    looked_at: int  # number of jobs in these groups and in those beyond the limit


class Minute(NamedTuple):
    """What happened to the jobs of one queue in one minute."""

    minute: datetime
    queue: str
    succeeded: int
    failed: int  # jobs
    failures: int  # attempts


@dataclass(frozen=True, slots=True)
class History:
    """The last minutes: what happened, and how long the oldest ready job of each queue had waited."""

    now: datetime  # the current minute
    minutes: Sequence[Minute]
    lags: Mapping[datetime, Mapping[str, float]]  # only recorded minutes, and queues with ready jobs

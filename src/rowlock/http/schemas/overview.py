"""Schemas of overviews: recent minutes, workers with their jobs, dead letters by reason, a job's timeline."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.requests import EXAMPLE_ID, EXAMPLE_TIME
from rowlock.http.schemas.responses import WorkerSchema


class QueueHistorySchema(Told):
    """One number for each minute."""

    succeeded: list[int]
    failed: list[int] = Field(description="Dead letters.")
    failed_attempts: list[int]
    lag_seconds: list[float | None] = Field(
        description="Waiting time of the oldest available job; null if no supervisor was running to measure it."
    )


class HistorySchema(Told):
    """The last minutes of every queue."""

    minutes: list[datetime] = Field(
        description="Oldest first; the last minute has not ended.", examples=[[EXAMPLE_TIME]]
    )
    queues: dict[str, QueueHistorySchema]


class RunningSchema(Told):
    """A job that runs."""

    id: str = Field(examples=[EXAMPLE_ID])
    type: str
    queue: str
    company_id: str | None
    attempt: int
    started_at: datetime
    progress: int | None
    message: str | None


class BusyWorkerSchema(WorkerSchema):
    jobs: list[RunningSchema] = Field(description="Its running jobs, oldest first.")


class DoingSchema(Told):
    """Who does what."""

    workers: list[BusyWorkerSchema]
    more: bool = Field(description="True: more than 200 jobs run; only 200 are listed.")


class DeadGroupSchema(Told):
    """Failed jobs of one type that failed for the same reason."""

    type: str
    reason: str = Field(description="The first line of the error, at most 200 characters; filter by it with `reason`.")
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: str = Field(description="The newest job of the group.", examples=[EXAMPLE_ID])
    guidance: list[str] = Field(description="Guidance: what to do about them.")


class DeadGroupsSchema(Told):
    """Failed jobs by type and reason, the largest group first."""

    groups: list[DeadGroupSchema]
    more: bool = Field(description="True: there are more than 200 groups; only 200 are listed.")
    looked_at: int = Field(description="Number of failed jobs that were counted, newest first.")
    complete: bool = Field(description="False: not all failed jobs were counted, so counts may be larger.")


class EventSchema(Told):
    """A moment in the life of a job."""

    at: datetime = Field(
        description="Time of the event; for `due`, the time of the next attempt.", examples=[EXAMPLE_TIME]
    )
    kind: Literal["enqueued", "started", "failed", "retried", "due", "succeeded", "cancelled"] = Field(
        description="`failed`: an attempt; `retried`: by an operator."
    )
    attempt: int | None
    seconds: float | None = Field(description="Duration of the attempt that ended.")
    owner: str | None = Field(description="The worker that ran it, if known.")
    reason: str | None
    stack_trace: str | None = Field(description="Only for the role admin.")


class TimelineSchema(Told):
    """The life of a job, the oldest event first."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    events: list[EventSchema]
    more: bool = Field(description="True: there are more than 200 failed attempts; the oldest are omitted.")

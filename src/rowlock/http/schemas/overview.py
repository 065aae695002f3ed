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
    failed: list[int] = Field(description="For good.")
    failed_attempts: list[int]
    lag_seconds: list[float | None] = Field(
        description="How long the oldest ready job had waited; null where nobody looked, for want of a supervisor."
    )


class HistorySchema(Told):
    """The last minutes of every queue."""

    minutes: list[datetime] = Field(
        description="The oldest first; the last one has not ended.", examples=[[EXAMPLE_TIME]]
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
    jobs: list[RunningSchema] = Field(description="What it runs, what began first first.")


class DoingSchema(Told):
    """Who does what."""

    workers: list[BusyWorkerSchema]
    more: bool = Field(description="True: more jobs run than are told, which are 200.")


class DeadGroupSchema(Told):
    """Failed jobs of one type that failed for the same reason."""

    type: str
    reason: str = Field(description="The first line of the error, at most 200 characters; `reason` asks for it.")
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: str = Field(description="The newest of them.", examples=[EXAMPLE_ID])
    guidance: list[str] = Field(description="What people may do about them.")


class DeadGroupsSchema(Told):
    """Failed jobs by type and reason, the largest group first."""

    groups: list[DeadGroupSchema]
    more: bool = Field(description="True: there are more groups than are told, which are 200.")
    looked_at: int = Field(description="How many failed jobs were looked at, the newest.")
    complete: bool = Field(description="False: there are more failed jobs, and counts may be larger.")


class EventSchema(Told):
    """A moment in the life of a job."""

    at: datetime = Field(description="When; of `due`, when it may start next.", examples=[EXAMPLE_TIME])
    kind: Literal["enqueued", "started", "failed", "retried", "due", "succeeded", "cancelled"] = Field(
        description="`failed`: an attempt; `retried`: by an operator."
    )
    attempt: int | None
    seconds: float | None = Field(description="How long the attempt took that ended.")
    owner: str | None = Field(description="The worker that ran it, where it is known.")
    reason: str | None
    stack_trace: str | None = Field(description="For administrators.")


class TimelineSchema(Told):
    """The life of a job, the oldest event first."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    events: list[EventSchema]
    more: bool = Field(description="True: the oldest of more than 200 failed attempts are left out.")

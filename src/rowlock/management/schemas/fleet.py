"""The fleet: queues, workers and their jobs, health, the last minutes, retention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from rowlock.management.schemas.base import EXAMPLE_ID, EXAMPLE_TIME, Number, Schema, StatusField, Time, plain_text
from rowlock.observe.redaction import Redactor
from rowlock.storage.overview import MINUTE, History, Minute, Running
from rowlock.storage.records import QueueRecord, WorkerRecord


class QueueSchema(Schema):
    name: str
    paused: bool
    ready: int
    delayed: int
    processing: int
    oldest_ready_seconds: float | None

    @classmethod
    def of(cls, queue: QueueRecord) -> Self:
        return cls(
            name=queue.name,
            paused=queue.paused,
            ready=queue.ready,
            delayed=queue.delayed,
            processing=queue.processing,
            oldest_ready_seconds=queue.oldest_ready_seconds,
        )


class QueuesSchema(Schema):
    queues: list[QueueSchema]


class SwitchedSchema(Schema):
    name: str
    paused: bool
    known: bool = Field(description="False: the queue has no handlers and no waiting jobs.")


class WorkerSchema(Schema):
    id: str
    name: str
    queues: list[str]
    started_at: Time
    seen_at: Time
    alive: bool

    @classmethod
    def of(cls, worker: WorkerRecord, now: datetime, visibility_ms: int, **more: Any) -> Self:
        return cls(
            id=worker.id,
            name=worker.name,
            queues=list(worker.queues),
            started_at=worker.started_at,
            seen_at=worker.seen_at,
            alive=(now - worker.seen_at).total_seconds() * 1000 <= visibility_ms,
            **more,
        )


class RunningSchema(Schema):
    """A job that runs."""

    id: str = Field(examples=[EXAMPLE_ID])
    type: str
    queue: str
    company_id: str | None
    attempt: int
    started_at: Time
    progress: int | None
    message: str | None

    @classmethod
    def of(cls, job: Running, redact: Redactor) -> Self:
        return cls(
            id=job.id,
            type=job.type,
            queue=job.queue,
            company_id=job.company_id,
            attempt=job.attempt,
            started_at=job.started_at,
            progress=job.progress,
            message=plain_text(job.message, redact),
        )


class BusyWorkerSchema(WorkerSchema):
    jobs: list[RunningSchema] = Field(description="Its running jobs, oldest first.")


class DoingSchema(Schema):
    """Who does what."""

    workers: list[BusyWorkerSchema]
    more: bool = Field(description="True: more than 200 jobs run; only 200 are listed.")


class QueueHistorySchema(Schema):
    """One number for each minute."""

    succeeded: list[int]
    failed: list[int] = Field(description="Dead letters.")
    failed_attempts: list[int]
    lag_seconds: list[float | None] = Field(
        description="Waiting time of the oldest available job; null if no supervisor was running to measure it."
    )


class HistorySchema(Schema):
    """The last minutes of every queue."""

    minutes: list[Time] = Field(description="Oldest first; the last minute has not ended.", examples=[[EXAMPLE_TIME]])
    queues: dict[str, QueueHistorySchema]

    @classmethod
    def of(cls, history: History, minutes: int, queues: Iterable[str]) -> Self:
        """The last `minutes` of these queues and of all others with activity, the oldest minute first."""
        times = [history.now - MINUTE * back for back in reversed(range(minutes))]
        happened = {(each.queue, each.minute): each for each in history.minutes}
        lags = history.lags
        names = {*queues, *(queue for queue, _ in happened), *(queue for found in lags.values() for queue in found)}

        def queue_history(name: str) -> QueueHistorySchema:
            found = [happened.get((name, time)) or Minute(time, name, 0, 0, 0) for time in times]
            return QueueHistorySchema(
                succeeded=[each.succeeded for each in found],
                failed=[each.failed for each in found],
                failed_attempts=[each.failures for each in found],
                lag_seconds=[lags[time].get(name, 0.0) if time in lags else None for time in times],
            )

        return cls(minutes=times, queues={name: queue_history(name) for name in sorted(names)})


class SchemaStatus(Schema):
    current: int
    wanted: int


class TopFailedSchema(Schema):
    job_name: str
    count: int


class FailedSchema(Schema):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    top_failed_jobs: list[TopFailedSchema]


class UnservedTypeSchema(Schema):
    queue: str
    type: str
    jobs: int


class HealthSchema(Schema):
    """What `rowlock health --json` says."""

    status: Literal["ok", "warning"]
    database: str
    schema_: SchemaStatus = Field(alias="schema")
    jobs: dict[StatusField, int]
    failures: FailedSchema
    queues: list[QueueSchema]
    workers: list[WorkerSchema]
    unserved_types: list[UnservedTypeSchema] = Field(
        description="Types with waiting jobs for which no live worker has a handler."
    )
    warnings: list[str]


class QueueCountsSchema(Schema):
    waiting: int
    active: int
    delayed: int
    failed: int
    completed: int


class DlqSchema(Schema):
    failed_last_hour: int
    failed_last24h: int = Field(alias="failedLast24h")
    retention_days: Number


class QueueHealthSchema(Schema):
    queue_name: str
    resilient_mode: bool
    counts: QueueCountsSchema
    oldest_waiting_age_sec: int | None
    failed_last_hour: int
    top_failed_jobs: list[TopFailedSchema]
    dlq: DlqSchema


class PrunedSchema(Schema):
    removed: dict[str, int]


class StateSchema(Schema):
    status: Literal["ok", "ready"]

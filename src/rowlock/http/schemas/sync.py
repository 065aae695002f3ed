"""Schemas of answers about outbound sync, as the OpenAPI description shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.requests import EXAMPLE_ID, StatusWord


class OperationSchema(Told):
    name: str = Field(examples=["create_contact"])
    type: str = Field(description="The job type.", examples=["hubspot.create_contact"])
    enabled: bool = Field(description="False: its jobs are skipped.")
    priority: int = Field(description="Default priority; lower runs first.", examples=[5])
    fields: list[str] = Field(description="Fields of its payload; empty: any.")
    key: str | None = Field(
        description="While a job with this key waits or runs, sending updates its payload and returns it."
    )
    about: str | None = Field(description="Jobs with the same subject call one at a time, in no particular order.")
    batch: int | None = Field(description="Maximum number of jobs in one call.")


class IntegrationSchema(Told):
    """A system that operations are sent to."""

    name: str = Field(examples=["hubspot"])
    enabled: bool
    why: str | None = Field(description="Why it is disabled, and how to enable it.")
    queues: list[str] = Field(description="The queue of its jobs.")
    scopes_url: str | None = Field(description="Page where the owner sets the scopes of the credentials.")
    operations: list[OperationSchema]


class IntegrationsSchema(Told):
    integrations: list[IntegrationSchema]


class SyncStatsSchema(Told):
    """How many jobs of an integration there are; with a company's token, of that company."""

    pending: int = Field(description="Waiting for their first attempt.")
    processing: int
    failed: int = Field(description="Waiting for a retry.")
    dead: int = Field(description="Dead letters.")
    completed24h: int = Field(alias="completed24h")


class SyncFailureSchema(Told):
    """A job whose last attempt failed."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    operation: str
    status: StatusWord
    error: str | None
    retry_count: int
    next_retry_at: datetime | None = Field(description="Null: no automatic retry.")


class AllowanceSchema(Told):
    """A limit on calls, and how much of it is in use."""

    name: str = Field(examples=["10 s"])
    count: int
    per_seconds: float
    group: str | None = Field(description="The group of calls that it limits; null: all calls.")
    in_use: int
    rests_until: datetime | None = Field(description="No calls before this time, because the service asked to wait.")


class SyncMonitorSchema(Told):
    integration: str
    enabled: bool
    why: str | None
    counts: SyncStatsSchema
    failures: list[SyncFailureSchema] = Field(description="The 20 most recent failures.")
    mean_processing_ms: float | None = Field(
        description="Mean duration of the jobs that succeeded in the last 24 hours."
    )
    lag_seconds: float | None = Field(description="Waiting time of the oldest available job.")
    limits: list[AllowanceSchema] = Field(
        description="Empty with a token for one company, because all companies share them."
    )

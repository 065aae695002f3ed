"""Schemas of answers about outbound sync, as the OpenAPI description shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.requests import EXAMPLE_ID, StatusWord


class OperationSchema(Told):
    name: str = Field(examples=["create_contact"])
    type: str = Field(description="The type of its jobs.", examples=["hubspot.create_contact"])
    enabled: bool = Field(description="False: its jobs are skipped.")
    priority: int = Field(description="Of jobs that name none; lower goes first.", examples=[5])
    fields: list[str] = Field(description="Of its payload; none: it takes any.")
    key: str | None = Field(
        description="While a job of this key waits or runs, sending gives that job, with the new payload."
    )
    about: str | None = Field(description="Of jobs about the same, one calls at a time, in no certain order.")
    batch: int | None = Field(description="So many jobs may go in one call.")


class IntegrationSchema(Told):
    """A system that operations are sent to."""

    name: str = Field(examples=["hubspot"])
    enabled: bool
    why: str | None = Field(description="Why it is disabled, and what enables it.")
    queues: list[str] = Field(description="Where its jobs wait.")
    scopes_url: str | None = Field(description="Where its owner says what our credentials may do.")
    operations: list[OperationSchema]


class IntegrationsSchema(Told):
    integrations: list[IntegrationSchema]


class SyncStatsSchema(Told):
    """How many jobs of an integration there are; with a company's token, of that company."""

    pending: int = Field(description="Waiting, and not tried yet.")
    processing: int
    failed: int = Field(description="Tried, and waiting for another try.")
    dead: int = Field(description="Failed for good.")
    completed24h: int = Field(alias="completed24h")


class SyncFailureSchema(Told):
    """A job whose last attempt failed."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    operation: str
    status: StatusWord
    error: str | None
    retry_count: int
    next_retry_at: datetime | None = Field(description="Null: it is not tried again by itself.")


class AllowanceSchema(Told):
    """A limit on calls, and how much of it is in use."""

    name: str = Field(examples=["10 s"])
    count: int
    per_seconds: float
    group: str | None = Field(description="The calls that it is about; null: all.")
    in_use: int
    rests_until: datetime | None = Field(description="No call is made before, since the other side asked for it.")


class SyncMonitorSchema(Told):
    integration: str
    enabled: bool
    why: str | None
    counts: SyncStatsSchema
    failures: list[SyncFailureSchema] = Field(description="The 20 most recent.")
    mean_processing_ms: float | None = Field(description="Of jobs that succeeded in the last 24 hours.")
    lag_seconds: float | None = Field(description="How long the oldest job that could run has waited.")
    limits: list[AllowanceSchema] = Field(description="None with a company's token: all companies share them.")

"""Outbound sync: integrations with their operations, and how they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from rowlock.management.schemas.base import EXAMPLE_ID, Number, Schema, StatusField, Time
from rowlock.observe.redaction import Redactor
from rowlock.sync.integration import Integration


class OperationSchema(Schema):
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


class IntegrationSchema(Schema):
    """A system that operations are sent to."""

    name: str = Field(examples=["hubspot"])
    enabled: bool
    why: str | None = Field(description="Why it is disabled, and how to enable it.")
    queues: list[str] = Field(description="The queue of its jobs.")
    scopes_url: str | None = Field(description="Page where the owner sets the scopes of the credentials.")
    operations: list[OperationSchema]

    @classmethod
    def of(cls, integration: Integration) -> Self:
        return cls(
            name=integration.name,
            enabled=integration.disabled is None,
            why=integration.disabled,
            queues=list(integration.queues),
            scopes_url=integration.scopes_url,
            operations=[
                OperationSchema(
                    name=operation.name,
                    type=operation.type,
                    enabled=operation.enabled,
                    priority=operation.priority,
                    fields=sorted(operation.names),
                    key=operation.key if isinstance(operation.key, str) else None,
                    about=operation.about if isinstance(operation.about, str) else None,
                    batch=operation.batch,
                )
                for operation in integration.operations.values()
            ],
        )


class IntegrationsSchema(Schema):
    integrations: list[IntegrationSchema]


class SyncStatsSchema(Schema):
    """How many jobs of an integration there are; with a company's token, of that company."""

    pending: int = Field(description="Waiting for their first attempt.")
    processing: int
    failed: int = Field(description="Waiting for a retry.")
    dead: int = Field(description="Dead letters.")
    completed24h: int = Field(alias="completed24h")


class SyncFailureSchema(Schema):
    """A job whose last attempt failed."""

    job_id: str = Field(examples=[EXAMPLE_ID])
    operation: str
    status: StatusField
    error: str | None
    retry_count: int
    next_retry_at: Time | None = Field(description="Null: no automatic retry.")


class AllowanceSchema(Schema):
    """A limit on calls, and how much of it is in use."""

    name: str = Field(examples=["10 s"])
    count: int
    per_seconds: Number
    group: str | None = Field(description="The group of calls that it limits; null: all calls.")
    in_use: int
    rests_until: Time | None = Field(description="No calls before this time, because the service asked to wait.")


class SyncMonitorSchema(Schema):
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

    @classmethod
    def of(cls, found: Mapping[str, Any], redact: Redactor) -> Self:
        """The answer of `Integration.monitor`, its errors redacted."""
        failures = [each | {"error": each["error"] and redact.message(each["error"])} for each in found["failures"]]
        return cls.model_validate({**found, "failures": failures})

"""Every setting and limit, from the environment; the unit stands last in its name."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rowlock.errors import SettingsError

PRIORITY_RANGE = (-32_768, 32_767)
NAME_LENGTH_MAX = 200
DELAY_SECONDS_MAX = 10 * 366 * 86_400.0
ERROR_LENGTH_MAX = 2_000

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Milliseconds = Annotated[int, Field(ge=10, le=86_400_000)]


def _named(name: str, *others: str) -> Any:
    return AliasChoices(name, *others)


class Settings(BaseSettings):
    """The settings of one application. Names without the prefix ROWLOCK_ are those that users know already."""

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True, frozen=True)

    database_url: str = Field("sqlite:///rowlock.db", validation_alias=_named("DATABASE_URL"))
    app: str = Field("backoffice:app", validation_alias=_named("ROWLOCK_APP"))
    listen_url: str | None = Field(None, validation_alias=_named("ROWLOCK_LISTEN_URL"))
    connections: Annotated[int, Field(ge=2, le=100)] = Field(4, validation_alias=_named("ROWLOCK_CONNECTIONS"))

    queue: str = Field("default", validation_alias=_named("WORKER_QUEUE_NAME"))
    concurrency: Count = Field(4, validation_alias=_named("WORKER_CONCURRENCY", "QUEUE_CONCURRENCY"))
    import_queue: str = Field("imports", validation_alias=_named("IMPORT_QUEUE_NAME"))
    import_concurrency: Count = Field(2, validation_alias=_named("IMPORT_WORKER_CONCURRENCY"))
    processes: Annotated[int, Field(ge=1, le=256)] = Field(1, validation_alias=_named("ROWLOCK_PROCESSES"))
    resilient: bool = Field(False, validation_alias=_named("QUEUE_RESILIENT_MODE"))

    visibility_ms: Milliseconds = Field(
        30_000, validation_alias=_named("QUEUE_VISIBILITY_MS", "QUEUE_STUCK_THRESHOLD_MS")
    )
    heartbeat_ms: Milliseconds = Field(10_000, validation_alias=_named("QUEUE_HEARTBEAT_MS"))
    poll_ms: Milliseconds = Field(5_000, validation_alias=_named("QUEUE_POLL_MS"))
    rescue_ms: Milliseconds = Field(2_000, validation_alias=_named("ROWLOCK_RESCUE_MS"))
    rescue_batch: Count = Field(1_000, validation_alias=_named("ROWLOCK_RESCUE_BATCH"))

    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = Field(5, validation_alias=_named("QUEUE_MAX_ATTEMPTS"))
    backoff_base_seconds: float = Field(1.0, ge=0, validation_alias=_named("ROWLOCK_BACKOFF_BASE_SECONDS"))
    backoff_factor: float = Field(2.0, ge=1, validation_alias=_named("ROWLOCK_BACKOFF_FACTOR"))
    backoff_max_seconds: float = Field(60.0, ge=0, validation_alias=_named("ROWLOCK_BACKOFF_MAX_SECONDS"))
    deaths_max: Annotated[int, Field(ge=1, le=100)] = Field(3, validation_alias=_named("ROWLOCK_DEATHS_MAX"))
    deadline_seconds: float | None = Field(None, gt=0, validation_alias=_named("ROWLOCK_DEADLINE_SECONDS"))
    kill_seconds: float = Field(2.0, ge=0, validation_alias=_named("ROWLOCK_KILL_SECONDS"))
    grace_seconds: float = Field(25.0, ge=0, le=3_600, validation_alias=_named("ROWLOCK_GRACE_SECONDS"))

    buffer_max: Annotated[int, Field(ge=0, le=10_000)] = Field(500, validation_alias=_named("ROWLOCK_BUFFER_MAX"))
    settle_max: Count = Field(1_000, validation_alias=_named("ROWLOCK_SETTLE_MAX"))
    enqueue_max: Count = Field(2_000, validation_alias=_named("ROWLOCK_ENQUEUE_MAX"))
    payload_bytes_max: Annotated[int, Field(ge=1, le=64 * 1_048_576)] = Field(
        1_048_576, validation_alias=_named("ROWLOCK_PAYLOAD_BYTES_MAX")
    )
    queue_size_max: Annotated[int, Field(ge=1, le=100_000_000)] = Field(
        1_000_000, validation_alias=_named("ROWLOCK_QUEUE_SIZE_MAX")
    )

    keep_succeeded_days: float | None = Field(30.0, ge=0, validation_alias=_named("ROWLOCK_KEEP_SUCCEEDED_DAYS"))
    keep_succeeded_count: int | None = Field(None, ge=0, validation_alias=_named("ROWLOCK_KEEP_SUCCEEDED_COUNT"))
    keep_failed_days: float | None = Field(90.0, ge=0, validation_alias=_named("ROWLOCK_KEEP_FAILED_DAYS"))
    keep_failed_count: int | None = Field(None, ge=0, validation_alias=_named("ROWLOCK_KEEP_FAILED_COUNT"))
    keep_cancelled_days: float | None = Field(30.0, ge=0, validation_alias=_named("ROWLOCK_KEEP_CANCELLED_DAYS"))
    prune_minutes: float = Field(60.0, gt=0, validation_alias=_named("ROWLOCK_PRUNE_MINUTES"))
    prune_batch: Count = Field(5_000, validation_alias=_named("ROWLOCK_PRUNE_BATCH"))

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", validation_alias=_named("ROWLOCK_LOG_LEVEL")
    )
    log_format: Literal["auto", "text", "json"] = Field("auto", validation_alias=_named("ROWLOCK_LOG_FORMAT"))
    redact_keys: str = Field(
        "password,token,secret,key,authorization",
        validation_alias=_named("ROWLOCK_REDACT_KEYS"),
        description="keys containing one of these words are never shown; separated by commas",
    )

    @model_validator(mode="after")
    def _heartbeat_within_visibility(self) -> Self:
        if self.heartbeat_ms * 2 > self.visibility_ms:
            raise ValueError(
                f"QUEUE_HEARTBEAT_MS ({self.heartbeat_ms}) must be at most half of QUEUE_VISIBILITY_MS "
                f"({self.visibility_ms}), or a single late heartbeat loses every lease"
            )
        return self


def environment_name(field: str) -> str:
    """The environment variable that sets a field."""
    alias = Settings.model_fields[field].validation_alias
    assert isinstance(alias, AliasChoices)
    return str(alias.choices[0])


def load(**changes: Any) -> Settings:
    """The settings of the environment with these changes; raises SettingsError naming each bad one."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("; ".join(_reason(dict(item)) for item in error.errors())) from None


def _reason(item: dict[str, Any]) -> str:
    name = str(item["loc"][0]) if item["loc"] else ""
    if name in Settings.model_fields:
        name = environment_name(name)
    message = item["msg"].removeprefix("Value error, ")
    shown = f" (got {item['input']!r})" if name else ""
    return f"{name}: {message}{shown}" if name else message


@cache
def defaults() -> Settings:
    """The settings with nothing set, for documentation."""
    return Settings.model_construct()

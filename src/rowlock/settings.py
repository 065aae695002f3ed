"""Every setting and limit, read from the environment. Names end with the unit."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from rowlock.errors import DELAY_SECONDS_MAX, KEY_LENGTH_MAX, SettingsError

PRIORITY_RANGE = (-32_768, 32_767)
NAME_LENGTH_MAX = KEY_LENGTH_MAX
ERROR_LENGTH_MAX = 2_000
STACK_LENGTH_MAX = 4_000

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Milliseconds = Annotated[int, Field(ge=10, le=86_400_000)]


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX)]


def _setting(names: str, default: Any, description: str) -> Any:
    """A setting with its environment variables, the preferred name first."""
    return Field(default, validation_alias=AliasChoices(*names.split(", ")), description=description)


class Settings(BaseSettings):
    """The settings of one application. Variables without the prefix ROWLOCK_ have the names of the seed documents."""

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True, frozen=True)

    database_url: str = _setting(
        "DATABASE_URL", "sqlite:///rowlock.db", "database URL: sqlite:///file.db, postgresql://…, mongodb://…"
    )
    app: str | None = _setting("ROWLOCK_APP", None, "the application that the commands work on, module:attribute")
    listen_url: str | None = _setting(
        "ROWLOCK_LISTEN_URL",
        None,
        "URL of a direct connection for LISTEN, if DATABASE_URL goes through a connection pooler",
    )
    connections: Annotated[int, Field(ge=2, le=100)] = _setting(
        "ROWLOCK_CONNECTIONS", 4, "PostgreSQL connections per process, not counting the one for LISTEN"
    )

    document_views: bool = _setting(
        "ROWLOCK_DOCUMENT_VIEWS",
        False,
        "PostgreSQL: rowlock migrate also creates the views job_failures and job_idempotency_locks in the connection's "
        "default schema, unless these names are taken (reference application: True)",
    )

    queue: Name = _setting(
        "WORKER_QUEUE_NAME", "default", "queue of jobs that do not name one (reference application: ai-cfo-jobs)"
    )
    concurrency: Count = _setting("WORKER_CONCURRENCY, QUEUE_CONCURRENCY", 4, "concurrent jobs per queue and process")
    processes: Annotated[int, Field(ge=1, le=256)] = _setting("ROWLOCK_PROCESSES", 1, "worker processes per supervisor")
    resilient: bool = _setting(
        "QUEUE_RESILIENT_MODE", False, "run each job immediately in the process that enqueues it, without the queue"
    )

    unique: Annotated[str, Field(pattern=r"^(none|forever|while_active|window:[0-9]{1,9}(\.[0-9]+)?)$")] = _setting(
        "QUEUE_UNIQUE",
        "none",
        "unique policy of jobs whose type and call declare none; jobs with the same type and payload are duplicates: "
        "none, forever, while_active or window:SECONDS (reference application: window:86400)",
    )
    unique_for: Literal["all", "requests"] = _setting(
        "QUEUE_UNIQUE_FOR",
        "all",
        "jobs that QUEUE_UNIQUE applies to: all (except scheduled jobs), or requests (jobs from the HTTP API and the "
        "command line) (reference application: requests)",
    )

    visibility_ms: Milliseconds = _setting(
        "QUEUE_VISIBILITY_MS, QUEUE_STUCK_THRESHOLD_MS",
        30_000,
        "visibility timeout: a lease expires if its worker sends no heartbeat for this long",
    )
    heartbeat_ms: Milliseconds = _setting(
        "QUEUE_HEARTBEAT_MS",
        10_000,
        "interval at which the supervisor renews leases; at most half of the visibility timeout",
    )
    poll_ms: Milliseconds = _setting(
        "QUEUE_POLL_MS", 5_000, "interval at which an idle worker polls without a notification"
    )
    rescue_ms: Milliseconds = _setting(
        "ROWLOCK_RESCUE_MS", 2_000, "interval of the search for jobs with an expired lease"
    )
    rescue_batch: Count = _setting("ROWLOCK_RESCUE_BATCH", 1_000, "jobs rescued in one transaction")

    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = _setting(
        "QUEUE_MAX_ATTEMPTS", 5, "attempts before a job becomes a dead letter"
    )
    backoff_base_seconds: NotNegative = _setting(
        "ROWLOCK_BACKOFF_BASE_SECONDS", 1.0, "retry delay: min(base * factor ** attempt, max)"
    )
    backoff_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = _setting(
        "ROWLOCK_BACKOFF_FACTOR", 2.0, "factor of the retry delay"
    )
    backoff_max_seconds: NotNegative = _setting("ROWLOCK_BACKOFF_MAX_SECONDS", 60.0, "longest retry delay")
    deaths_max: Annotated[int, Field(ge=1, le=100)] = _setting(
        "ROWLOCK_DEATHS_MAX", 3, "number of processes that a job may kill before it is quarantined"
    )
    deadline_seconds: Annotated[float, Field(gt=0)] | None = _setting(
        "ROWLOCK_DEADLINE_SECONDS", None, "deadline of handlers whose job type declares none"
    )
    kill_seconds: NotNegative = _setting(
        "ROWLOCK_KILL_SECONDS",
        2.0,
        "time after the deadline before the supervisor kills the process of a handler that is still running",
    )
    grace_seconds: Annotated[float, Field(ge=0, le=3_600)] = _setting(
        "ROWLOCK_GRACE_SECONDS", 25.0, "grace period of running jobs after SIGTERM"
    )

    buffer_max: Annotated[int, Field(ge=0, le=10_000)] = _setting(
        "ROWLOCK_BUFFER_MAX", 4_000, "maximum prefetch per queue and process"
    )
    settle_max: Count = _setting("ROWLOCK_SETTLE_MAX", 4_000, "maximum number of jobs settled in one statement")
    enqueue_max: Count = _setting("ROWLOCK_ENQUEUE_MAX", 5_000, "maximum number of jobs enqueued in one statement")
    payload_bytes_max: Annotated[int, Field(ge=1, le=64 * 1_048_576)] = _setting(
        "ROWLOCK_PAYLOAD_BYTES_MAX", 1_048_576, "maximum size of a payload and of a result"
    )
    queue_size_max: Annotated[int, Field(ge=1, le=100_000_000)] = _setting(
        "ROWLOCK_QUEUE_SIZE_MAX", 1_000_000, "maximum number of waiting jobs in one queue"
    )

    keep_succeeded_days: NotNegative | None = _setting(
        "ROWLOCK_KEEP_SUCCEEDED_DAYS", 30.0, "retention of succeeded jobs"
    )
    keep_succeeded_count: Annotated[int, Field(ge=0)] | None = _setting(
        "ROWLOCK_KEEP_SUCCEEDED_COUNT", None, "number of succeeded jobs to keep, for example 1000"
    )
    keep_failed_days: NotNegative | None = _setting("ROWLOCK_KEEP_FAILED_DAYS", 90.0, "retention of dead letters")
    keep_failed_count: Annotated[int, Field(ge=0)] | None = _setting(
        "ROWLOCK_KEEP_FAILED_COUNT", None, "number of dead letters to keep, for example 1000"
    )
    keep_cancelled_days: NotNegative | None = _setting(
        "ROWLOCK_KEEP_CANCELLED_DAYS", 30.0, "retention of cancelled jobs"
    )
    keep_failure_days: NotNegative = _setting("JOB_DLQ_RETENTION_DAYS", 14.0, "retention of records of failed attempts")
    keep_failure_count: Annotated[int, Field(ge=1)] = _setting(
        "ROWLOCK_KEEP_FAILURE_COUNT",
        1_000_000,
        "number of records of failed attempts to keep; the oldest are deleted hourly",
    )
    failures_per_minute: Count = _setting(
        "ROWLOCK_FAILURES_PER_MINUTE",
        100,
        "identical failures of a worker per minute that are recorded individually; further ones share one record per "
        "minute, except last attempts",
    )
    keep_lock_days: NotNegative = _setting("ROWLOCK_KEEP_LOCK_DAYS", 90.0, "retention of released idempotency locks")
    keep_run_days: NotNegative = _setting("ROWLOCK_KEEP_RUN_DAYS", 90.0, "retention of schedule runs")
    keep_token_days: NotNegative = _setting("ROWLOCK_KEEP_TOKEN_DAYS", 90.0, "retention of expired and revoked tokens")
    prune_minutes: Annotated[float, Field(gt=0)] = _setting("ROWLOCK_PRUNE_MINUTES", 60.0, "interval of pruning")
    prune_batch: Count = _setting("ROWLOCK_PRUNE_BATCH", 5_000, "maximum number of jobs pruned in one transaction")

    spike_threshold: Count = _setting(
        "JOB_FAILURE_SPIKE_THRESHOLD", 10, "failed attempts of a queue per hour that raise an alert"
    )
    lock_stale_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = _setting(
        "JOB_LOCK_STALE_MINUTES", 30.0, "age after which an idempotency lock that was not renewed can be taken over"
    )
    notify_targets: str = _setting(
        "ROWLOCK_NOTIFY_TARGETS",
        "",
        "where to send notifications about dead letters: apprise URLs (mailto://…, slack://…), separated by spaces",
    )
    webhook_urls: str = _setting(
        "ROWLOCK_WEBHOOK_URLS", "", "webhooks for notifications about dead letters, separated by spaces"
    )
    webhook_secret: str | None = _setting(
        "ROWLOCK_WEBHOOK_SECRET",
        None,
        "secret (whsec_…) that signs webhooks according to the Standard Webhooks specification",
    )
    webhook_allow_private: bool = _setting(
        "ROWLOCK_WEBHOOK_ALLOW_PRIVATE", False, "allow webhooks to private addresses"
    )
    notify_seconds: Annotated[float, Field(ge=1, le=86_400)] = _setting(
        "ROWLOCK_NOTIFY_SECONDS",
        300.0,
        "minimum time between two notifications; each lists all dead letters since the previous one",
    )

    import_queue: Name = _setting("IMPORT_QUEUE_NAME", "imports", "queue of imports whose type declares none")
    import_concurrency: Annotated[int, Field(ge=1, le=64)] = _setting(
        "IMPORT_WORKER_CONCURRENCY", 2, "concurrent import chunks per process"
    )
    import_store: str = _setting(
        "ROWLOCK_IMPORT_STORE", "rowlock-files", "folder for uploads and chunks, shared by the API and all workers"
    )
    import_folder: str = _setting(
        "ROWLOCK_IMPORT_FOLDER",
        "imports",
        "folder of files that are imported by name; a token with a company reads the subfolder named after its id",
    )
    import_manifest: str = _setting(
        "ROWLOCK_IMPORT_MANIFEST", "config/import-manifest.json", "file that maps file names to import types and sheets"
    )
    import_xlsx_bytes_max: Annotated[int, Field(ge=1, le=1 << 30)] = _setting(
        "ROWLOCK_IMPORT_XLSX_BYTES_MAX", 10 * 1_048_576, "maximum size of an uploaded workbook"
    )
    import_csv_bytes_max: Annotated[int, Field(ge=1, le=1 << 40)] = _setting(
        "ROWLOCK_IMPORT_CSV_BYTES_MAX", 1 << 30, "maximum size of an uploaded CSV file"
    )
    import_unpacked_bytes_max: Annotated[int, Field(ge=1, le=1 << 42)] = _setting(
        "ROWLOCK_IMPORT_UNPACKED_BYTES_MAX", 8 << 30, "maximum unpacked size of a .csv.gz file"
    )
    import_columns_max: Annotated[int, Field(ge=1, le=16_384)] = _setting(
        "ROWLOCK_IMPORT_COLUMNS_MAX", 1_000, "maximum number of columns of a file"
    )
    import_cell_chars_max: Annotated[int, Field(ge=1, le=16 * 1_048_576)] = _setting(
        "ROWLOCK_IMPORT_CELL_CHARS_MAX", 1_048_576, "maximum number of characters in a cell"
    )
    import_chunk_bytes: Annotated[int, Field(ge=1_024, le=1 << 28)] = _setting(
        "ROWLOCK_IMPORT_CHUNK_BYTES", 7 * 1_048_576, "approximate size of a chunk"
    )
    import_chunks_max: Annotated[int, Field(ge=1, le=10_000)] = _setting(
        "ROWLOCK_IMPORT_CHUNKS_MAX", 1_000, "maximum number of chunks of an import; larger files have larger chunks"
    )
    import_errors_max: Annotated[int, Field(ge=1, le=1_000_000)] = _setting(
        "ROWLOCK_IMPORT_ERRORS_MAX", 10_000, "errors of an import that are stored; further ones are only counted"
    )
    import_plan_seconds: Annotated[float, Field(gt=0, le=86_400)] = _setting(
        "ROWLOCK_IMPORT_PLAN_SECONDS", 1_800.0, "time limit for reading a file"
    )
    import_plan_memory_mb: Annotated[int, Field(ge=128, le=65_536)] = _setting(
        "ROWLOCK_IMPORT_PLAN_MEMORY_MB", 512, "memory limit of the process that reads a file"
    )
    keep_import_file_days: NotNegative = _setting(
        "ROWLOCK_KEEP_IMPORT_FILE_DAYS",
        7.0,
        "retention of the files of failed imports, for resuming them, and of dry runs, for importing them",
    )
    keep_import_days: NotNegative = _setting(
        "ROWLOCK_KEEP_IMPORT_DAYS", 90.0, "retention of imports, their errors and totals"
    )

    hubspot_token: str | None = _setting(
        "ROWLOCK_HUBSPOT_TOKEN", None, "access token of a HubSpot private app; without it the integration is disabled"
    )
    hubspot_url: str = _setting("ROWLOCK_HUBSPOT_URL", "https://api.hubapi.com", "base URL of the HubSpot API")
    hubspot_operations_off: str = _setting(
        "ROWLOCK_HUBSPOT_OPERATIONS_OFF",
        "create_deal,sync_member",
        "disabled operations, separated by commas; their jobs only log and succeed",
    )
    hubspot_calls_per_10_seconds: Count = _setting(
        "ROWLOCK_HUBSPOT_CALLS_PER_10_SECONDS", 100, "HubSpot calls per 10 seconds, for all processes together"
    )
    hubspot_calls_per_day: Annotated[int, Field(ge=1, le=1_000_000_000)] = _setting(
        "ROWLOCK_HUBSPOT_CALLS_PER_DAY", 250_000, "HubSpot calls per 24 hours, for all processes together"
    )
    hubspot_searches_per_second: Count = _setting(
        "ROWLOCK_HUBSPOT_SEARCHES_PER_SECOND", 4, "calls of the HubSpot search per second, for all processes together"
    )
    hubspot_ensure_delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_ENSURE_DELAY_SECONDS",
        15.0,
        "delay between start-up and the creation of missing HubSpot properties",
    )
    hubspot_cycle_delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_CYCLE_DELAY_SECONDS", 30.0, "delay between start-up and the first HubSpot cycle"
    )
    hubspot_cycle_seconds: Annotated[float, Field(ge=1, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_CYCLE_SECONDS", 120.0, "interval between HubSpot cycles"
    )
    sync_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = _setting(
        "ROWLOCK_SYNC_TIMEOUT_SECONDS", 30.0, "time limit for a whole call to a service; at most 120"
    )
    sync_concurrency: Annotated[int, Field(ge=1, le=64)] = _setting(
        "ROWLOCK_SYNC_CONCURRENCY", 5, "concurrent jobs of an integration per queue and process"
    )
    sync_limited_rounds: Count = _setting(
        "ROWLOCK_SYNC_LIMITED_ROUNDS",
        100,
        "number of 429 responses that release a job without counting an attempt; each further one counts",
    )
    keep_subject_days: NotNegative = _setting(
        "ROWLOCK_KEEP_SUBJECT_DAYS",
        365.0,
        "retention of the last write of each subject; must be longer than failed jobs are retried",
    )

    http_host: str = _setting("ROWLOCK_HTTP_HOST", "127.0.0.1", "address that the HTTP API listens on")
    http_port: Annotated[int, Field(ge=0, le=65_535)] = _setting(
        "ROWLOCK_HTTP_PORT", 8_000, "port that the HTTP API listens on; 0: any free port"
    )
    http_body_bytes_max: Annotated[int, Field(ge=1, le=128 * 1_048_576)] = _setting(
        "ROWLOCK_HTTP_BODY_BYTES_MAX", 1_179_648, "maximum size of a request body: a payload and its other fields"
    )
    http_body_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_BODY_SECONDS", 20.0, "time limit for receiving a request body"
    )
    http_bodies_max: Count = _setting(
        "ROWLOCK_HTTP_BODIES_MAX",
        64,
        "bodies of more than 64 kB that are received concurrently; further requests get a 429 with Retry-After",
    )
    http_header_bytes_max: Annotated[int, Field(ge=1_024, le=1_048_576)] = _setting(
        "ROWLOCK_HTTP_HEADER_BYTES_MAX", 16_384, "maximum size of the request line and headers"
    )
    http_header_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_HEADER_SECONDS", 10.0, "time limit for receiving the headers"
    )
    http_request_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_REQUEST_SECONDS", 60.0, "time limit for a response, except for /api/v1/events"
    )
    http_requests_max: Count = _setting(
        "ROWLOCK_HTTP_REQUESTS_MAX", 1_000, "maximum number of concurrent requests, not counting event streams"
    )
    http_requests_per_second: Count = _setting(
        "ROWLOCK_HTTP_REQUESTS_PER_SECOND",
        5_000,
        "requests per second of one token, per process; further requests get a 429 with Retry-After",
    )
    http_guesses_per_minute: Count = _setting(
        "ROWLOCK_HTTP_GUESSES_PER_MINUTE", 30, "failed sign-ins per minute and client address, per process"
    )
    http_token_seconds: Annotated[float, Field(ge=0, le=300)] = _setting(
        "ROWLOCK_HTTP_TOKEN_SECONDS", 2.0, "how long a token is cached before it is read from the database again"
    )
    http_idempotency_hours: Annotated[float, Field(gt=0, le=720)] = _setting(
        "ROWLOCK_HTTP_IDEMPOTENCY_HOURS", 24.0, "how long the response to a request with an Idempotency-Key is stored"
    )
    http_event_clients_max: Annotated[int, Field(ge=1, le=100_000)] = _setting(
        "ROWLOCK_HTTP_EVENT_CLIENTS_MAX", 10_000, "maximum number of clients of /api/v1/events, per process"
    )
    http_event_ms: Milliseconds = _setting(
        "ROWLOCK_HTTP_EVENT_MS", 500, "interval at which changes are read while clients are connected to /api/v1/events"
    )
    http_refresh_ms: Annotated[int, Field(ge=400, le=3_600_000)] = _setting(
        "ROWLOCK_HTTP_REFRESH_MS", 2_000, "minimum time between two refreshes of an open dashboard page"
    )
    http_trusted_proxies: str = _setting(
        "ROWLOCK_HTTP_TRUSTED_PROXIES",
        "",
        "addresses of trusted proxies, whose X-Forwarded-For names the client, separated by commas",
    )
    http_cors_origins: str = _setting(
        "ROWLOCK_HTTP_CORS_ORIGINS", "", "origins that may call the HTTP API from a browser (CORS), separated by commas"
    )

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "ROWLOCK_LOG_LEVEL", "info", "lowest level that is logged: debug, info, warning or error"
    )
    log_format: Literal["auto", "text", "json"] = _setting(
        "ROWLOCK_LOG_FORMAT", "auto", "text, json, or auto (text on a terminal, JSON otherwise)"
    )
    redact_keys: str = _setting(
        "ROWLOCK_REDACT_KEYS",
        "password,token,secret,key,authorization",
        "values under keys that contain one of these words are redacted: `apiKey`, `api_key`, `apikey`, `githubtoken`, "
        "not `keyboard`",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read only the environment: the source for .env files takes as long even without a file."""
        return init_settings, env_settings

    @field_validator("unique")
    @classmethod
    def _window_within_limits(cls, value: str) -> str:
        seconds = value.partition(":")[2]
        if seconds and not 0 < float(seconds) <= DELAY_SECONDS_MAX:
            raise ValueError(f"the window must be more than 0 seconds, at most {DELAY_SECONDS_MAX:.0f}")
        return value

    @property
    def notifies(self) -> bool:
        """Whether notifications about dead letters are configured."""
        return bool(self.notify_targets.strip() or self.webhook_urls.strip())

    @model_validator(mode="after")
    def _heartbeat_within_visibility(self) -> Self:
        if self.heartbeat_ms * 2 > self.visibility_ms:
            raise ValueError(
                f"QUEUE_HEARTBEAT_MS ({self.heartbeat_ms}) must be at most half of QUEUE_VISIBILITY_MS "
                f"({self.visibility_ms}), or a single late heartbeat loses every lease"
            )
        return self


def environment_names(field: str) -> list[str]:
    """The environment variables that set a field, the preferred one first."""
    alias = Settings.model_fields[field].validation_alias
    assert isinstance(alias, AliasChoices)
    return [str(choice) for choice in alias.choices]


def load(**changes: Any) -> Settings:
    """Return the settings of the environment with these changes; raises SettingsError that names each invalid one."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("; ".join(_reason(dict(item)) for item in error.errors())) from None


def _reason(item: dict[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return message
    given = str(item["loc"][0])
    for field in Settings.model_fields:
        names = environment_names(field)
        if given in (field, *names):  # the variable that was set, if there are several
            given = next((name for name in names if name in os.environ), names[0])
            break
    return f"{given}: {message} (got {item['input']!r})"

"""Every setting and limit, from the environment; the unit stands last in its name."""

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
    """The settings of one application. Names without the prefix ROWLOCK_ are those that users know already."""

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True, frozen=True)

    database_url: str = _setting(
        "DATABASE_URL", "sqlite:///rowlock.db", "where the jobs are: sqlite:///file.db, postgresql://…, mongodb://…"
    )
    app: str | None = _setting("ROWLOCK_APP", None, "the application that the commands work on, module:attribute")
    listen_url: str | None = _setting(
        "ROWLOCK_LISTEN_URL", None, "a direct connection for notifications, where DATABASE_URL goes through a pooler"
    )
    connections: Annotated[int, Field(ge=2, le=100)] = _setting(
        "ROWLOCK_CONNECTIONS", 4, "connections of one process to PostgreSQL, besides the one for notifications"
    )

    document_views: bool = _setting(
        "ROWLOCK_DOCUMENT_VIEWS",
        False,
        "PostgreSQL: rowlock migrate also creates the views job_failures and job_idempotency_locks in the connection's "
        "default schema, unless these names are taken (the reference application: True)",
    )

    queue: Name = _setting(
        "WORKER_QUEUE_NAME", "default", "the queue of jobs that name none (the reference application: ai-cfo-jobs)"
    )
    concurrency: Count = _setting("WORKER_CONCURRENCY, QUEUE_CONCURRENCY", 4, "jobs at once, per queue and process")
    processes: Annotated[int, Field(ge=1, le=256)] = _setting(
        "ROWLOCK_PROCESSES", 1, "worker processes under one supervisor"
    )
    resilient: bool = _setting(
        "QUEUE_RESILIENT_MODE", False, "run jobs where they are enqueued, at once, without the queue"
    )

    unique: Annotated[str, Field(pattern=r"^(none|forever|while_active|window:[0-9]{1,9}(\.[0-9]+)?)$")] = _setting(
        "QUEUE_UNIQUE",
        "none",
        "default uniqueness of jobs whose type and call set none; jobs of equal type and payload are duplicates: none, "
        "forever, while_active or window:SECONDS (the reference application: window:86400)",
    )
    unique_for: Literal["all", "requests"] = _setting(
        "QUEUE_UNIQUE_FOR",
        "all",
        "which jobs QUEUE_UNIQUE applies to: all except scheduled ones, or requests: those of the HTTP API and the "
        "command line (the reference application: requests)",
    )

    visibility_ms: Milliseconds = _setting(
        "QUEUE_VISIBILITY_MS, QUEUE_STUCK_THRESHOLD_MS",
        30_000,
        "a lease runs out when its worker was not seen for so long",
    )
    heartbeat_ms: Milliseconds = _setting(
        "QUEUE_HEARTBEAT_MS",
        10_000,
        "how often the supervisor renews all leases; at most half of the visibility timeout",
    )
    poll_ms: Milliseconds = _setting("QUEUE_POLL_MS", 5_000, "how often an idle worker looks without being told to")
    rescue_ms: Milliseconds = _setting(
        "ROWLOCK_RESCUE_MS", 2_000, "how often jobs with an expired lease are looked for"
    )
    rescue_batch: Count = _setting("ROWLOCK_RESCUE_BATCH", 1_000, "how many of them at a time")

    max_attempts: Annotated[int, Field(ge=1, le=1_000)] = _setting(
        "QUEUE_MAX_ATTEMPTS", 5, "attempts before a job is failed for good"
    )
    backoff_base_seconds: NotNegative = _setting(
        "ROWLOCK_BACKOFF_BASE_SECONDS", 1.0, "the wait before a retry is min(base * factor ** attempt, max)"
    )
    backoff_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = _setting(
        "ROWLOCK_BACKOFF_FACTOR", 2.0, "see above"
    )
    backoff_max_seconds: NotNegative = _setting("ROWLOCK_BACKOFF_MAX_SECONDS", 60.0, "see above")
    deaths_max: Annotated[int, Field(ge=1, le=100)] = _setting(
        "ROWLOCK_DEATHS_MAX", 3, "a job that killed so many processes is quarantined"
    )
    deadline_seconds: Annotated[float, Field(gt=0)] | None = _setting(
        "ROWLOCK_DEADLINE_SECONDS", None, "how long a handler may run, where its type does not say"
    )
    kill_seconds: NotNegative = _setting(
        "ROWLOCK_KILL_SECONDS", 2.0, "a handler that has not stopped so long after its deadline loses its process"
    )
    grace_seconds: Annotated[float, Field(ge=0, le=3_600)] = _setting(
        "ROWLOCK_GRACE_SECONDS", 25.0, "how long running jobs may go on after SIGTERM"
    )

    buffer_max: Annotated[int, Field(ge=0, le=10_000)] = _setting(
        "ROWLOCK_BUFFER_MAX", 4_000, "jobs claimed ahead, per queue and process, at most"
    )
    settle_max: Count = _setting("ROWLOCK_SETTLE_MAX", 4_000, "jobs settled in one statement, at most")
    enqueue_max: Count = _setting("ROWLOCK_ENQUEUE_MAX", 5_000, "jobs enqueued in one statement, at most")
    payload_bytes_max: Annotated[int, Field(ge=1, le=64 * 1_048_576)] = _setting(
        "ROWLOCK_PAYLOAD_BYTES_MAX", 1_048_576, "size of a payload, and of a result"
    )
    queue_size_max: Annotated[int, Field(ge=1, le=100_000_000)] = _setting(
        "ROWLOCK_QUEUE_SIZE_MAX", 1_000_000, "waiting jobs in one queue"
    )

    keep_succeeded_days: NotNegative | None = _setting(
        "ROWLOCK_KEEP_SUCCEEDED_DAYS", 30.0, "retention of succeeded jobs, by age"
    )
    keep_succeeded_count: Annotated[int, Field(ge=0)] | None = _setting(
        "ROWLOCK_KEEP_SUCCEEDED_COUNT", None, "and by number, for example 1000"
    )
    keep_failed_days: NotNegative | None = _setting(
        "ROWLOCK_KEEP_FAILED_DAYS", 90.0, "retention of the dead-letter queue, by age"
    )
    keep_failed_count: Annotated[int, Field(ge=0)] | None = _setting(
        "ROWLOCK_KEEP_FAILED_COUNT", None, "and by number, for example 1000"
    )
    keep_cancelled_days: NotNegative | None = _setting(
        "ROWLOCK_KEEP_CANCELLED_DAYS", 30.0, "retention of cancelled jobs, by age"
    )
    keep_failure_days: NotNegative = _setting(
        "JOB_DLQ_RETENTION_DAYS", 14.0, "retention of the record of failed attempts"
    )
    keep_failure_count: Annotated[int, Field(ge=1)] = _setting(
        "ROWLOCK_KEEP_FAILURE_COUNT", 1_000_000, "and by number: the oldest go first, hourly"
    )
    failures_per_minute: Count = _setting(
        "ROWLOCK_FAILURES_PER_MINUTE",
        100,
        "identical failures of a worker in a minute that are recorded one by one; more are counted in one record a "
        "minute, except those of last attempts",
    )
    keep_lock_days: NotNegative = _setting(
        "ROWLOCK_KEEP_LOCK_DAYS", 90.0, "retention of idempotency locks after their work has ended"
    )
    keep_run_days: NotNegative = _setting("ROWLOCK_KEEP_RUN_DAYS", 90.0, "retention of the runs of schedules")
    keep_token_days: NotNegative = _setting("ROWLOCK_KEEP_TOKEN_DAYS", 90.0, "retention of tokens after they ended")
    prune_minutes: Annotated[float, Field(gt=0)] = _setting(
        "ROWLOCK_PRUNE_MINUTES", 60.0, "how often retention is applied"
    )
    prune_batch: Count = _setting("ROWLOCK_PRUNE_BATCH", 5_000, "jobs removed in one transaction, at most")

    spike_threshold: Count = _setting(
        "JOB_FAILURE_SPIKE_THRESHOLD", 10, "failed attempts of a queue in an hour that raise an alert"
    )
    lock_stale_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = _setting(
        "JOB_LOCK_STALE_MINUTES", 30.0, "an idempotency lock that was taken or renewed longer ago may be taken over"
    )
    notify_targets: str = _setting(
        "ROWLOCK_NOTIFY_TARGETS",
        "",
        "who is told when jobs die: apprise URLs (mailto://…, slack://…), separated by spaces",
    )
    webhook_urls: str = _setting("ROWLOCK_WEBHOOK_URLS", "", "and webhooks, separated by spaces")
    webhook_secret: str | None = _setting(
        "ROWLOCK_WEBHOOK_SECRET", None, "whsec_… that signs webhooks after the Standard Webhooks specification"
    )
    webhook_allow_private: bool = _setting(
        "ROWLOCK_WEBHOOK_ALLOW_PRIVATE", False, "let webhooks reach private addresses"
    )
    notify_seconds: Annotated[float, Field(ge=1, le=86_400)] = _setting(
        "ROWLOCK_NOTIFY_SECONDS", 300.0, "at most one message in so long; it names all deaths since the last"
    )

    import_queue: Name = _setting("IMPORT_QUEUE_NAME", "imports", "the queue of imports whose type names none")
    import_concurrency: Annotated[int, Field(ge=1, le=64)] = _setting(
        "IMPORT_WORKER_CONCURRENCY", 2, "chunks of imports at once, per process"
    )
    import_store: str = _setting(
        "ROWLOCK_IMPORT_STORE", "rowlock-files", "the folder of uploads and chunks, shared by the API and all workers"
    )
    import_folder: str = _setting(
        "ROWLOCK_IMPORT_FOLDER",
        "imports",
        "the folder of files that are imported by name; a company's token reads its subfolder with the company's id",
    )
    import_manifest: str = _setting(
        "ROWLOCK_IMPORT_MANIFEST", "config/import-manifest.json", "which type and sheet a file name stands for"
    )
    import_xlsx_bytes_max: Annotated[int, Field(ge=1, le=1 << 30)] = _setting(
        "ROWLOCK_IMPORT_XLSX_BYTES_MAX", 10 * 1_048_576, "size of an uploaded workbook"
    )
    import_csv_bytes_max: Annotated[int, Field(ge=1, le=1 << 40)] = _setting(
        "ROWLOCK_IMPORT_CSV_BYTES_MAX", 1 << 30, "size of an uploaded CSV file"
    )
    import_unpacked_bytes_max: Annotated[int, Field(ge=1, le=1 << 42)] = _setting(
        "ROWLOCK_IMPORT_UNPACKED_BYTES_MAX", 8 << 30, "size of a .csv.gz file when it is unpacked"
    )
    import_columns_max: Annotated[int, Field(ge=1, le=16_384)] = _setting(
        "ROWLOCK_IMPORT_COLUMNS_MAX", 1_000, "columns of a file"
    )
    import_cell_chars_max: Annotated[int, Field(ge=1, le=16 * 1_048_576)] = _setting(
        "ROWLOCK_IMPORT_CELL_CHARS_MAX", 1_048_576, "characters of one cell"
    )
    import_chunk_bytes: Annotated[int, Field(ge=1_024, le=1 << 28)] = _setting(
        "ROWLOCK_IMPORT_CHUNK_BYTES", 7 * 1_048_576, "about so much of a file is one chunk"
    )
    import_chunks_max: Annotated[int, Field(ge=1, le=10_000)] = _setting(
        "ROWLOCK_IMPORT_CHUNKS_MAX", 1_000, "chunks of one import; of a larger file they are larger"
    )
    import_errors_max: Annotated[int, Field(ge=1, le=1_000_000)] = _setting(
        "ROWLOCK_IMPORT_ERRORS_MAX", 10_000, "errors of one import that are kept in full; all are counted"
    )
    import_plan_seconds: Annotated[float, Field(gt=0, le=86_400)] = _setting(
        "ROWLOCK_IMPORT_PLAN_SECONDS", 1_800.0, "how long reading one file may take"
    )
    import_plan_memory_mb: Annotated[int, Field(ge=128, le=65_536)] = _setting(
        "ROWLOCK_IMPORT_PLAN_MEMORY_MB", 512, "memory of the process that reads a file"
    )
    keep_import_file_days: NotNegative = _setting(
        "ROWLOCK_KEEP_IMPORT_FILE_DAYS",
        7.0,
        "how long the files of an import that failed are kept, to resume it, and of a dry run, to import it for real",
    )
    keep_import_days: NotNegative = _setting(
        "ROWLOCK_KEEP_IMPORT_DAYS", 90.0, "retention of imports, their errors and totals"
    )

    hubspot_token: str | None = _setting(
        "ROWLOCK_HUBSPOT_TOKEN", None, "the access token of a HubSpot private app; without it HubSpot is off"
    )
    hubspot_url: str = _setting("ROWLOCK_HUBSPOT_URL", "https://api.hubapi.com", "where HubSpot's API is")
    hubspot_operations_off: str = _setting(
        "ROWLOCK_HUBSPOT_OPERATIONS_OFF",
        "create_deal,sync_member",
        "operations whose jobs only log and succeed, separated by commas",
    )
    hubspot_calls_per_10_seconds: Count = _setting(
        "ROWLOCK_HUBSPOT_CALLS_PER_10_SECONDS", 100, "calls of HubSpot in any ten seconds, by the whole fleet"
    )
    hubspot_calls_per_day: Annotated[int, Field(ge=1, le=1_000_000_000)] = _setting(
        "ROWLOCK_HUBSPOT_CALLS_PER_DAY", 250_000, "and in any 24 hours"
    )
    hubspot_searches_per_second: Count = _setting(
        "ROWLOCK_HUBSPOT_SEARCHES_PER_SECOND", 4, "and of its search, in any second"
    )
    hubspot_ensure_delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_ENSURE_DELAY_SECONDS", 15.0, "from start-up until missing HubSpot properties are created"
    )
    hubspot_cycle_delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_CYCLE_DELAY_SECONDS", 30.0, "from start-up to the first HubSpot cycle"
    )
    hubspot_cycle_seconds: Annotated[float, Field(ge=1, le=86_400)] = _setting(
        "ROWLOCK_HUBSPOT_CYCLE_SECONDS", 120.0, "from one HubSpot cycle to the next"
    )
    sync_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = _setting(
        "ROWLOCK_SYNC_TIMEOUT_SECONDS", 30.0, "how long one call of another service may take, as a whole; at most 120"
    )
    sync_concurrency: Annotated[int, Field(ge=1, le=64)] = _setting(
        "ROWLOCK_SYNC_CONCURRENCY", 5, "jobs of an integration at once, per queue and process"
    )
    sync_limited_rounds: Count = _setting(
        "ROWLOCK_SYNC_LIMITED_ROUNDS",
        100,
        "how often a 429 releases a job without spending an attempt; each further 429 spends one",
    )
    keep_subject_days: NotNegative = _setting(
        "ROWLOCK_KEEP_SUBJECT_DAYS",
        365.0,
        "how long it is known which job wrote what last; longer than failed jobs may be retried",
    )

    http_host: str = _setting("ROWLOCK_HTTP_HOST", "127.0.0.1", "the address that the HTTP API is served on")
    http_port: Annotated[int, Field(ge=0, le=65_535)] = _setting(
        "ROWLOCK_HTTP_PORT", 8_000, "and the port; 0 lets the system choose one"
    )
    http_body_bytes_max: Annotated[int, Field(ge=1, le=128 * 1_048_576)] = _setting(
        "ROWLOCK_HTTP_BODY_BYTES_MAX", 1_179_648, "size of a request's body: a payload and what goes with it"
    )
    http_body_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_BODY_SECONDS", 20.0, "how long a client may take to send a body"
    )
    http_bodies_max: Count = _setting(
        "ROWLOCK_HTTP_BODIES_MAX", 64, "bodies of more than 64 kB that are received at once; more are asked to wait"
    )
    http_header_bytes_max: Annotated[int, Field(ge=1_024, le=1_048_576)] = _setting(
        "ROWLOCK_HTTP_HEADER_BYTES_MAX", 16_384, "size of a request's line and headers"
    )
    http_header_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_HEADER_SECONDS", 10.0, "how long a client may take to send them"
    )
    http_request_seconds: Annotated[float, Field(gt=0, le=3_600)] = _setting(
        "ROWLOCK_HTTP_REQUEST_SECONDS", 60.0, "how long an answer may take, except that of /api/v1/events"
    )
    http_requests_max: Count = _setting(
        "ROWLOCK_HTTP_REQUESTS_MAX", 1_000, "requests that are answered at once, listeners to events apart"
    )
    http_requests_per_second: Count = _setting(
        "ROWLOCK_HTTP_REQUESTS_PER_SECOND", 5_000, "requests of one token, per process; more are asked to wait"
    )
    http_guesses_per_minute: Count = _setting(
        "ROWLOCK_HTTP_GUESSES_PER_MINUTE", 30, "unknown tokens that one address may try, per process"
    )
    http_token_seconds: Annotated[float, Field(ge=0, le=300)] = _setting(
        "ROWLOCK_HTTP_TOKEN_SECONDS", 2.0, "how long a known token is trusted before the store is asked again"
    )
    http_idempotency_hours: Annotated[float, Field(gt=0, le=720)] = _setting(
        "ROWLOCK_HTTP_IDEMPOTENCY_HOURS", 24.0, "how long the answer to a request with an Idempotency-Key is kept"
    )
    http_event_clients_max: Annotated[int, Field(ge=1, le=100_000)] = _setting(
        "ROWLOCK_HTTP_EVENT_CLIENTS_MAX", 10_000, "clients of /api/v1/events, per process"
    )
    http_event_ms: Milliseconds = _setting(
        "ROWLOCK_HTTP_EVENT_MS", 500, "how often changes are looked for while someone listens to events"
    )
    http_refresh_ms: Annotated[int, Field(ge=400, le=3_600_000)] = _setting(
        "ROWLOCK_HTTP_REFRESH_MS", 2_000, "an open page of the dashboard is fetched again at most this often"
    )
    http_trusted_proxies: str = _setting(
        "ROWLOCK_HTTP_TRUSTED_PROXIES",
        "",
        "addresses of proxies whose X-Forwarded-For names the client, separated by commas",
    )
    http_cors_origins: str = _setting(
        "ROWLOCK_HTTP_CORS_ORIGINS", "", "origins whose pages may call the HTTP API, separated by commas"
    )

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "ROWLOCK_LOG_LEVEL", "info", "debug, info, warning or error"
    )
    log_format: Literal["auto", "text", "json"] = _setting(
        "ROWLOCK_LOG_FORMAT", "auto", "text, json, or auto: text on a terminal"
    )
    redact_keys: str = _setting(
        "ROWLOCK_REDACT_KEYS",
        "password,token,secret,key,authorization",
        "values under keys with one of these words are never shown: `apiKey`, `api_key`, `apikey`, `githubtoken`, "
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
        """Read the environment only: without a file, the source for .env files costs as much time as this one."""
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
        """Whether anyone is told of deaths."""
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
    """The settings of the environment with these changes; raises SettingsError naming each bad one."""
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

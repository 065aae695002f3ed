"""Every setting has its environment variable, its documented default and its limits."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import Rowlock, SettingsError
from rowlock.settings import Settings, load

# Field, variables, default, another value as text, and as the setting has it.
TABLE: list[tuple[str, list[str], Any, str, Any]] = [
    ("database_url", ["DATABASE_URL"], "sqlite:///rowlock.db", "sqlite:///other.db", "sqlite:///other.db"),
    ("app", ["ROWLOCK_APP"], None, "shop:app", "shop:app"),
    ("listen_url", ["ROWLOCK_LISTEN_URL"], None, "postgresql://direct", "postgresql://direct"),
    ("connections", ["ROWLOCK_CONNECTIONS"], 4, "7", 7),
    ("queue", ["WORKER_QUEUE_NAME"], "default", "jobs", "jobs"),
    ("concurrency", ["WORKER_CONCURRENCY", "QUEUE_CONCURRENCY"], 4, "9", 9),
    ("processes", ["ROWLOCK_PROCESSES"], 1, "3", 3),
    ("resilient", ["QUEUE_RESILIENT_MODE"], False, "true", True),
    ("unique", ["QUEUE_UNIQUE"], "none", "window:60", "window:60"),
    ("unique_for", ["QUEUE_UNIQUE_FOR"], "all", "requests", "requests"),
    ("visibility_ms", ["QUEUE_VISIBILITY_MS", "QUEUE_STUCK_THRESHOLD_MS"], 30_000, "300000", 300_000),
    ("heartbeat_ms", ["QUEUE_HEARTBEAT_MS"], 10_000, "500", 500),
    ("poll_ms", ["QUEUE_POLL_MS"], 5_000, "250", 250),
    ("rescue_ms", ["ROWLOCK_RESCUE_MS"], 2_000, "100", 100),
    ("rescue_batch", ["ROWLOCK_RESCUE_BATCH"], 1_000, "5", 5),
    ("max_attempts", ["QUEUE_MAX_ATTEMPTS"], 5, "3", 3),
    ("backoff_base_seconds", ["ROWLOCK_BACKOFF_BASE_SECONDS"], 1.0, "60", 60.0),
    ("backoff_factor", ["ROWLOCK_BACKOFF_FACTOR"], 2.0, "1.5", 1.5),
    ("backoff_max_seconds", ["ROWLOCK_BACKOFF_MAX_SECONDS"], 60.0, "3600", 3600.0),
    ("deaths_max", ["ROWLOCK_DEATHS_MAX"], 3, "1", 1),
    ("deadline_seconds", ["ROWLOCK_DEADLINE_SECONDS"], None, "12.5", 12.5),
    ("kill_seconds", ["ROWLOCK_KILL_SECONDS"], 2.0, "0.5", 0.5),
    ("grace_seconds", ["ROWLOCK_GRACE_SECONDS"], 25.0, "0", 0.0),
    ("buffer_max", ["ROWLOCK_BUFFER_MAX"], 4_000, "0", 0),
    ("settle_max", ["ROWLOCK_SETTLE_MAX"], 4_000, "10", 10),
    ("enqueue_max", ["ROWLOCK_ENQUEUE_MAX"], 5_000, "10", 10),
    ("payload_bytes_max", ["ROWLOCK_PAYLOAD_BYTES_MAX"], 1_048_576, "2048", 2_048),
    ("queue_size_max", ["ROWLOCK_QUEUE_SIZE_MAX"], 1_000_000, "10", 10),
    ("keep_succeeded_days", ["ROWLOCK_KEEP_SUCCEEDED_DAYS"], 30.0, "7", 7.0),
    ("keep_succeeded_count", ["ROWLOCK_KEEP_SUCCEEDED_COUNT"], None, "1000", 1_000),
    ("keep_failed_days", ["ROWLOCK_KEEP_FAILED_DAYS"], 90.0, "14", 14.0),
    ("keep_failed_count", ["ROWLOCK_KEEP_FAILED_COUNT"], None, "1000", 1_000),
    ("keep_cancelled_days", ["ROWLOCK_KEEP_CANCELLED_DAYS"], 30.0, "1", 1.0),
    ("keep_failure_days", ["JOB_DLQ_RETENTION_DAYS"], 14.0, "7", 7.0),
    ("keep_failure_count", ["ROWLOCK_KEEP_FAILURE_COUNT"], 1_000_000, "1000", 1_000),
    ("failures_per_minute", ["ROWLOCK_FAILURES_PER_MINUTE"], 100, "5", 5),
    ("keep_lock_days", ["ROWLOCK_KEEP_LOCK_DAYS"], 90.0, "7", 7.0),
    ("keep_run_days", ["ROWLOCK_KEEP_RUN_DAYS"], 90.0, "7", 7.0),
    ("keep_token_days", ["ROWLOCK_KEEP_TOKEN_DAYS"], 90.0, "7", 7.0),
    ("import_queue", ["IMPORT_QUEUE_NAME"], "imports", "files", "files"),
    ("import_concurrency", ["IMPORT_WORKER_CONCURRENCY"], 2, "3", 3),
    ("import_store", ["ROWLOCK_IMPORT_STORE"], "rowlock-files", "/data/files", "/data/files"),
    ("import_folder", ["ROWLOCK_IMPORT_FOLDER"], "imports", "/data/in", "/data/in"),
    ("import_manifest", ["ROWLOCK_IMPORT_MANIFEST"], "config/import-manifest.json", "other.json", "other.json"),
    ("import_xlsx_bytes_max", ["ROWLOCK_IMPORT_XLSX_BYTES_MAX"], 10_485_760, "1000", 1_000),
    ("import_csv_bytes_max", ["ROWLOCK_IMPORT_CSV_BYTES_MAX"], 1_073_741_824, "1000", 1_000),
    ("import_unpacked_bytes_max", ["ROWLOCK_IMPORT_UNPACKED_BYTES_MAX"], 8_589_934_592, "1000", 1_000),
    ("import_columns_max", ["ROWLOCK_IMPORT_COLUMNS_MAX"], 1_000, "50", 50),
    ("import_cell_chars_max", ["ROWLOCK_IMPORT_CELL_CHARS_MAX"], 1_048_576, "100", 100),
    ("import_chunk_bytes", ["ROWLOCK_IMPORT_CHUNK_BYTES"], 7_340_032, "2048", 2_048),
    ("import_chunks_max", ["ROWLOCK_IMPORT_CHUNKS_MAX"], 1_000, "10", 10),
    ("import_errors_max", ["ROWLOCK_IMPORT_ERRORS_MAX"], 10_000, "10", 10),
    ("import_plan_seconds", ["ROWLOCK_IMPORT_PLAN_SECONDS"], 1_800.0, "60", 60.0),
    ("import_plan_memory_mb", ["ROWLOCK_IMPORT_PLAN_MEMORY_MB"], 512, "256", 256),
    ("keep_import_file_days", ["ROWLOCK_KEEP_IMPORT_FILE_DAYS"], 7.0, "1", 1.0),
    ("keep_import_days", ["ROWLOCK_KEEP_IMPORT_DAYS"], 90.0, "1", 1.0),
    ("hubspot_token", ["ROWLOCK_HUBSPOT_TOKEN"], None, "pat-1", "pat-1"),
    (
        "hubspot_url",
        ["ROWLOCK_HUBSPOT_URL"],
        "https://api.hubapi.com",
        "http://127.0.0.1:9000",
        "http://127.0.0.1:9000",
    ),
    ("hubspot_operations_off", ["ROWLOCK_HUBSPOT_OPERATIONS_OFF"], "create_deal,sync_member", "", ""),
    ("hubspot_calls_per_10_seconds", ["ROWLOCK_HUBSPOT_CALLS_PER_10_SECONDS"], 100, "150", 150),
    ("hubspot_calls_per_day", ["ROWLOCK_HUBSPOT_CALLS_PER_DAY"], 250_000, "500000", 500_000),
    ("hubspot_searches_per_second", ["ROWLOCK_HUBSPOT_SEARCHES_PER_SECOND"], 4, "5", 5),
    ("hubspot_ensure_delay_seconds", ["ROWLOCK_HUBSPOT_ENSURE_DELAY_SECONDS"], 15.0, "0", 0.0),
    ("hubspot_cycle_delay_seconds", ["ROWLOCK_HUBSPOT_CYCLE_DELAY_SECONDS"], 30.0, "1.5", 1.5),
    ("hubspot_cycle_seconds", ["ROWLOCK_HUBSPOT_CYCLE_SECONDS"], 120.0, "60", 60.0),
    ("document_views", ["ROWLOCK_DOCUMENT_VIEWS"], False, "true", True),
    ("sync_timeout_seconds", ["ROWLOCK_SYNC_TIMEOUT_SECONDS"], 30.0, "2.5", 2.5),
    ("sync_limited_rounds", ["ROWLOCK_SYNC_LIMITED_ROUNDS"], 100, "7", 7),
    ("sync_concurrency", ["ROWLOCK_SYNC_CONCURRENCY"], 5, "2", 2),
    ("keep_subject_days", ["ROWLOCK_KEEP_SUBJECT_DAYS"], 365.0, "30", 30.0),
    ("http_host", ["ROWLOCK_HTTP_HOST"], "127.0.0.1", "0.0.0.0", "0.0.0.0"),
    ("http_port", ["ROWLOCK_HTTP_PORT"], 8_000, "0", 0),
    ("http_body_bytes_max", ["ROWLOCK_HTTP_BODY_BYTES_MAX"], 1_179_648, "1000", 1_000),
    ("http_body_seconds", ["ROWLOCK_HTTP_BODY_SECONDS"], 20.0, "1.5", 1.5),
    ("http_bodies_max", ["ROWLOCK_HTTP_BODIES_MAX"], 64, "2", 2),
    ("http_header_bytes_max", ["ROWLOCK_HTTP_HEADER_BYTES_MAX"], 16_384, "2048", 2_048),
    ("http_header_seconds", ["ROWLOCK_HTTP_HEADER_SECONDS"], 10.0, "1", 1.0),
    ("http_request_seconds", ["ROWLOCK_HTTP_REQUEST_SECONDS"], 60.0, "5", 5.0),
    ("http_requests_max", ["ROWLOCK_HTTP_REQUESTS_MAX"], 1_000, "10", 10),
    ("http_requests_per_second", ["ROWLOCK_HTTP_REQUESTS_PER_SECOND"], 5_000, "10", 10),
    ("http_guesses_per_minute", ["ROWLOCK_HTTP_GUESSES_PER_MINUTE"], 30, "5", 5),
    ("http_token_seconds", ["ROWLOCK_HTTP_TOKEN_SECONDS"], 2.0, "0", 0.0),
    ("http_idempotency_hours", ["ROWLOCK_HTTP_IDEMPOTENCY_HOURS"], 24.0, "1", 1.0),
    ("http_event_clients_max", ["ROWLOCK_HTTP_EVENT_CLIENTS_MAX"], 10_000, "5", 5),
    ("http_event_ms", ["ROWLOCK_HTTP_EVENT_MS"], 500, "100", 100),
    ("http_refresh_ms", ["ROWLOCK_HTTP_REFRESH_MS"], 2_000, "400", 400),
    ("http_trusted_proxies", ["ROWLOCK_HTTP_TRUSTED_PROXIES"], "", "10.0.0.1", "10.0.0.1"),
    ("http_cors_origins", ["ROWLOCK_HTTP_CORS_ORIGINS"], "", "https://a.example", "https://a.example"),
    ("spike_threshold", ["JOB_FAILURE_SPIKE_THRESHOLD"], 10, "50", 50),
    ("lock_stale_minutes", ["JOB_LOCK_STALE_MINUTES"], 30.0, "5", 5.0),
    ("notify_targets", ["ROWLOCK_NOTIFY_TARGETS"], "", "json://localhost", "json://localhost"),
    ("webhook_urls", ["ROWLOCK_WEBHOOK_URLS"], "", "https://example.org/hook", "https://example.org/hook"),
    ("webhook_secret", ["ROWLOCK_WEBHOOK_SECRET"], None, "whsec_eA==", "whsec_eA=="),
    ("webhook_allow_private", ["ROWLOCK_WEBHOOK_ALLOW_PRIVATE"], False, "true", True),
    ("notify_seconds", ["ROWLOCK_NOTIFY_SECONDS"], 300.0, "60", 60.0),
    ("prune_minutes", ["ROWLOCK_PRUNE_MINUTES"], 60.0, "5", 5.0),
    ("prune_batch", ["ROWLOCK_PRUNE_BATCH"], 5_000, "10", 10),
    ("log_level", ["ROWLOCK_LOG_LEVEL"], "info", "debug", "debug"),
    ("log_format", ["ROWLOCK_LOG_FORMAT"], "auto", "json", "json"),
    ("redact_keys", ["ROWLOCK_REDACT_KEYS"], "password,token,secret,key,authorization", "iban", "iban"),
]
NAMES = [(field, name) for field, names, *_ in TABLE for name in names]

# Too small, too large or of the wrong kind, by variable.
WRONG: dict[str, list[str]] = {
    "QUEUE_UNIQUE": ["window:0", "window:0.0", "window:999999999", "window:-1", "window", "always"],
    "JOB_DLQ_RETENTION_DAYS": ["-1", "nan", "soon"],
    "ROWLOCK_KEEP_LOCK_DAYS": ["-1"],
    "ROWLOCK_KEEP_RUN_DAYS": ["-1"],
    "JOB_FAILURE_SPIKE_THRESHOLD": ["0", "-1", "many"],
    "JOB_LOCK_STALE_MINUTES": ["0", "-1", "nan", "inf"],
    "ROWLOCK_NOTIFY_SECONDS": ["0", "86401"],
    "ROWLOCK_CONNECTIONS": ["1", "101", "many"],
    "WORKER_CONCURRENCY": ["0", "-1", "1000001", "four", "1.5", ""],
    "QUEUE_CONCURRENCY": ["0", "four"],
    "ROWLOCK_PROCESSES": ["0", "257"],
    "QUEUE_RESILIENT_MODE": ["perhaps"],
    "QUEUE_VISIBILITY_MS": ["0", "86400001", "30s"],
    "QUEUE_STUCK_THRESHOLD_MS": ["x"],
    "QUEUE_HEARTBEAT_MS": ["9", "x"],
    "QUEUE_POLL_MS": ["9", "86400001"],
    "QUEUE_MAX_ATTEMPTS": ["0", "1001"],
    "ROWLOCK_BACKOFF_BASE_SECONDS": ["-1", "nan", "inf"],
    "ROWLOCK_BACKOFF_FACTOR": ["0.9", "nan", "inf"],
    "ROWLOCK_BACKOFF_MAX_SECONDS": ["-1", "nan", "inf"],
    "ROWLOCK_DEATHS_MAX": ["0", "101"],
    "ROWLOCK_DEADLINE_SECONDS": ["0", "-1", "nan"],
    "ROWLOCK_KILL_SECONDS": ["-1", "nan"],
    "ROWLOCK_GRACE_SECONDS": ["-1", "3601", "nan"],
    "ROWLOCK_BUFFER_MAX": ["-1", "10001"],
    "ROWLOCK_PAYLOAD_BYTES_MAX": ["0", "67108865"],
    "ROWLOCK_QUEUE_SIZE_MAX": ["0", "100000001"],
    "ROWLOCK_KEEP_SUCCEEDED_DAYS": ["-1", "nan"],
    "ROWLOCK_KEEP_FAILED_COUNT": ["-1"],
    "ROWLOCK_KEEP_FAILURE_COUNT": ["0"],
    "ROWLOCK_FAILURES_PER_MINUTE": ["0"],
    "ROWLOCK_PRUNE_MINUTES": ["0", "nan"],
    "ROWLOCK_LOG_LEVEL": ["loud"],
    "ROWLOCK_LOG_FORMAT": ["xml"],
    "WORKER_QUEUE_NAME": ["", "x" * 201],
    "IMPORT_QUEUE_NAME": ["", "x" * 201],
    "IMPORT_WORKER_CONCURRENCY": ["0", "65"],
    "ROWLOCK_IMPORT_XLSX_BYTES_MAX": ["0", "1073741825", "10MB"],
    "ROWLOCK_IMPORT_CSV_BYTES_MAX": ["0", "1099511627777"],
    "ROWLOCK_IMPORT_UNPACKED_BYTES_MAX": ["0", "4398046511105"],
    "ROWLOCK_IMPORT_COLUMNS_MAX": ["0", "16385"],
    "ROWLOCK_IMPORT_CELL_CHARS_MAX": ["0", "16777217"],
    "ROWLOCK_IMPORT_CHUNK_BYTES": ["1023", "268435457"],
    "ROWLOCK_IMPORT_CHUNKS_MAX": ["0", "10001"],
    "ROWLOCK_IMPORT_ERRORS_MAX": ["0", "1000001"],
    "ROWLOCK_IMPORT_PLAN_SECONDS": ["0", "86401", "nan"],
    "ROWLOCK_IMPORT_PLAN_MEMORY_MB": ["127", "65537"],
    "ROWLOCK_SYNC_TIMEOUT_SECONDS": ["0", "121", "nan"],
    "ROWLOCK_KEEP_IMPORT_FILE_DAYS": ["-1", "nan"],
    "ROWLOCK_KEEP_IMPORT_DAYS": ["-1", "nan"],
}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_this_table_names_every_setting() -> None:
    fields = {
        field: list(setting.validation_alias.choices)  # type: ignore[union-attr]
        for field, setting in Settings.model_fields.items()
    }
    assert fields == {field: names for field, names, *_ in TABLE}


def test_without_an_environment_every_setting_has_its_documented_default() -> None:
    settings = load()
    assert {field: getattr(settings, field) for field, *_ in TABLE} == {
        field: default for field, _, default, *_ in TABLE
    }


@pytest.mark.parametrize(("field", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_setting_is_set_by_its_variable(monkeypatch: pytest.MonkeyPatch, field: str, name: str) -> None:
    ((text, value),) = [(text, value) for known, _, _, text, value in TABLE if known == field]
    if field == "webhook_urls":
        monkeypatch.setenv("ROWLOCK_WEBHOOK_SECRET", "whsec_" + "eA" * 16)
    monkeypatch.setenv(name, text)
    assert getattr(load(), field) == value
    assert getattr(Rowlock().settings, field) == value


def test_what_the_code_says_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "9")
    monkeypatch.setenv("DATABASE_URL", "sqlite:///environment.db")
    assert load(concurrency=2).concurrency == 2
    assert Rowlock("sqlite:///given.db").settings.database_url == "sqlite:///given.db"
    assert Rowlock(settings=load(concurrency=3)).settings.concurrency == 3


def test_the_first_name_of_a_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_CONCURRENCY", "2")
    monkeypatch.setenv("WORKER_CONCURRENCY", "3")
    assert load().concurrency == 3


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts], ids=lambda part: part[:30]
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingsError, match=name):
        load()


def test_every_wrong_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_POLL_MS", "x")
    monkeypatch.setenv("QUEUE_MAX_ATTEMPTS", "0")
    with pytest.raises(SettingsError, match=r"QUEUE_POLL_MS.*QUEUE_MAX_ATTEMPTS"):
        Rowlock()


def test_a_heartbeat_slower_than_half_the_visibility_timeout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_VISIBILITY_MS", "15000")
    with pytest.raises(SettingsError, match=r"QUEUE_HEARTBEAT_MS .10000. .*QUEUE_VISIBILITY_MS .15000."):
        load()
    monkeypatch.setenv("QUEUE_HEARTBEAT_MS", "7500")
    assert load().heartbeat_ms == 7_500


def test_settings_cannot_be_changed_and_strange_variables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_UNKNOWN", "1")
    settings = load()
    with pytest.raises(Exception, match="frozen"):
        settings.poll_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://u:hunter2@host/db", "sqlite://", "sqlite:///:memory:", "postgresql://[bad"]
)
async def test_a_wrong_database_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        _ = Rowlock(url).store
    assert "hunter2" not in str(refused.value)

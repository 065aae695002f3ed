"""The commands about failures, schedules and metrics, run for real on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_cli import Cli, application, cli

from rowlock import Rowlock

__all__ = ["cli"]

if "hourly" not in application.schedules:
    application.schedule("hourly", "echo", {"text": "tick"}, cron="0 * * * *", zone="Europe/Berlin")


def only_failure(cli: Cli, *options: str) -> dict[str, object]:
    (failure,) = cli.json("failures", "list", *options)["failures"]
    found: dict[str, object] = failure
    return found


# -- failures --------------------------------------------------------------------------------------


def test_a_failure_is_listed_shown_and_retried(cli: Cli) -> None:
    (job_id,) = cli.failed()
    failure = only_failure(cli)
    assert set(failure) == {
        *("id", "jobId", "jobName", "queueName", "companyId", "payload", "attempts", "maxAttempts"),
        *("isFinalAttempt", "failedReason", "stackTrace", "firstFailedAt", "resolvedAt", "startedAt", "lockOwner"),
        *("occurrences", "lastFailedAt"),
    }
    assert (failure["occurrences"], failure["lastFailedAt"]) == (1, failure["firstFailedAt"])
    assert (failure["jobId"], failure["jobName"], failure["isFinalAttempt"]) == (job_id, "break", True)
    assert failure["failedReason"] == "broken with token=[REDACTED]"
    failure_id = str(failure["id"])
    listed = cli("failures", "list")
    assert failure_id in listed
    assert "dead" in listed
    shown = cli("failures", "show", failure_id)
    assert "in break_" in shown
    assert "hunter2" not in shown
    assert cli.json("failures", "retry", failure_id) == {"failureId": failure_id, "jobId": job_id}
    assert cli.json("jobs", "show", job_id)["status"] == "queued"
    assert "resolved" in cli("failures", "list")
    assert cli("failures", "list", "--unresolved") == "no failures match\n"


def test_failures_are_filtered_and_paged(cli: Cli) -> None:
    cli.failed(3)
    first = cli.json("failures", "list", "--limit=2")
    assert len(first["failures"]) == 2
    rest = cli.json("failures", "list", "--limit=2", f"--cursor={first['nextCursor']}")
    assert len(rest["failures"]) == 1
    assert rest["nextCursor"] is None
    assert cli.json("failures", "list", "--name=echo")["failures"] == []
    assert cli.json("failures", "list", "--company=acme")["failures"] == []
    assert len(cli.json("failures", "list", "--final")["failures"]) == 3
    job_id = first["failures"][0]["jobId"]
    assert [f["jobId"] for f in cli.json("failures", "list", f"--job={job_id}")["failures"]] == [job_id]
    cli("failures", "list", "--cursor=nonsense", code=2)
    assert "cursor" in cli.err


@pytest.mark.parametrize("command", ["show", "retry"])
def test_a_failure_that_is_not_there(cli: Cli, command: str) -> None:
    cli("migrate")
    cli("failures", command, "nobody", code=1)
    assert cli.err == "error: no failure has the id nobody; retention may have removed it\n"


def test_a_job_that_cannot_be_retried_says_why(cli: Cli) -> None:
    cli.failed()
    failure_id = str(only_failure(cli)["id"])
    cli("failures", "retry", failure_id)
    cli("failures", "retry", failure_id, code=1)
    assert "only failed and cancelled jobs can be retried" in cli.err


# -- schedules -------------------------------------------------------------------------------------


def test_schedules_are_listed_before_any_worker_ran(cli: Cli) -> None:
    cli("migrate")
    (schedule,) = cli.json("schedules", "list")["schedules"]
    assert (schedule["name"], schedule["jobType"], schedule["paused"]) == ("hourly", "echo", False)
    assert schedule["spec"] == "cron 0 * * * * Europe/Berlin"
    assert schedule["nextAt"].endswith(":00:00.000Z")
    assert schedule["lastRun"] is None
    assert "hourly" in cli("schedules", "list")
    assert cli("schedules", "runs") == "no runs yet\n"


def test_a_schedule_runs_out_of_turn(cli: Cli) -> None:
    cli("migrate")
    job_id = cli.json("schedules", "run", "hourly")["jobId"]
    (run,) = cli.json("schedules", "runs", "hourly")["runs"]
    assert (run["jobId"], run["status"]) == (job_id, "waiting")
    cli.drain()
    (run,) = cli.json("schedules", "runs")["runs"]
    assert run["status"] == "succeeded"
    assert run["startedAt"] <= run["endedAt"]
    assert "succeeded" in cli("schedules", "runs", "hourly", "--limit=5")


def test_a_schedule_is_paused_and_resumed(cli: Cli) -> None:
    cli("migrate")
    assert cli("schedules", "pause", "hourly") == "hourly is paused\n"
    assert cli.json("schedules", "list")["schedules"][0]["paused"]
    assert "paused" in cli("schedules", "list")
    assert cli.json("schedules", "resume", "hourly")["paused"] is False
    assert not cli.json("schedules", "list")["schedules"][0]["paused"]


@pytest.mark.parametrize("command", ["pause", "resume", "run"])
def test_a_schedule_that_is_not_declared(cli: Cli, command: str) -> None:
    cli("migrate")
    cli("schedules", command, "nightly", code=2)
    assert cli.err == "error: no schedule is called 'nightly'; known: hourly\n"


# -- metrics and health ----------------------------------------------------------------------------


def test_metrics_are_in_the_format_of_prometheus(cli: Cli) -> None:
    cli.failed(2)
    families = {family.name: family for family in text_string_to_metric_families(cli("metrics"))}
    jobs = {tuple(sample.labels.values()): sample.value for sample in families["rowlock_jobs"].samples}
    assert sum(jobs.values()) == 2
    assert "rowlock_run_seconds" in families
    assert any(measure["name"] == "rowlock_run_seconds_count" for measure in cli.json("metrics")["measures"])


def test_health_tells_of_failures(cli: Cli) -> None:
    cli.failed(10)
    found = cli.json("health")
    assert found["failures"]["failedLastHour"] == 10
    assert found["failures"]["topFailedJobs"] == [{"jobName": "break", "count": 10}]
    assert "10 attempts failed in the last hour: see `rowlock failures list`" in found["warnings"]
    assert "10 in the last hour" in cli("health")


# -- what is refused at the start ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROWLOCK_NOTIFY_TARGETS", "no such thing"),
        ("ROWLOCK_WEBHOOK_URLS", "ftp://example.org/"),
        ("JOB_DLQ_RETENTION_DAYS", "-1"),
        ("JOB_LOCK_STALE_MINUTES", "0"),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    from rowlock import SettingsError

    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name):
        Rowlock(f"sqlite:///{tmp_path}/jobs.db")

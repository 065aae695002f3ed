"""The commands for details: dead letters by reason, the timeline of a job, run now, jobs by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from test_cli import Cli, cli

from rowlock.cli.errors import UsageError
from rowlock.cli.times import moment_of, past_of

__all__ = ["cli"]

REASON = "broken with token=[REDACTED]"


def test_dead_jobs_are_counted_by_type_and_reason(cli: Cli) -> None:
    assert "no failed jobs" in cli("enqueue", "echo") + cli("dead", "list", "--groups")
    ids = cli.failed(2)
    told = cli.json("dead", "list", "--groups")
    assert (told["more"], told["lookedAt"], told["complete"]) == (False, 2, True)
    (group,) = told["groups"]
    assert (group["type"], group["reason"], group["count"], group["sampleId"]) == ("break", REASON, 2, ids[1])
    shown = cli("dead", "list", "--groups")
    assert REASON in shown
    assert cli.json("dead", "list", "--groups", "--type=echo")["groups"] == []
    cli("dead", "list", "--groups", "--reason=x", code=2)
    assert "--groups counts all reasons" in cli.err


def test_a_group_is_listed_retried_and_discarded_by_its_reason(cli: Cli) -> None:
    first, second = cli.failed(2)
    assert len(cli.json("dead", "list", "--reason", REASON)["jobs"]) == 2
    assert cli.json("dead", "list", "--reason", "another")["jobs"] == []
    assert cli.json("dead", "retry", "--reason", "another")["retried"] == 0
    assert cli.json("dead", "retry", first, "--reason", REASON)["retried"] == 1
    assert cli.json("dead", "discard", "--reason", REASON, "--yes")["discarded"] == 1
    cli("jobs", "show", second, code=1)
    cli("dead", "discard", "--all", "--reason", REASON, code=2)
    assert "remove --all" in cli.err


def test_the_life_of_a_job_is_a_table(cli: Cli) -> None:
    (job_id,) = cli.failed()
    events = cli.json("jobs", "timeline", job_id)["events"]
    assert [event["kind"] for event in events] == ["enqueued", "started", "failed"]
    assert "in break_" in events[2]["stackTrace"]
    shown = cli("jobs", "timeline", job_id)
    for word in ("enqueued", "started", "failed", REASON):
        assert word in shown
    cli("jobs", "timeline", "nobody", code=1)


def test_a_job_that_waits_for_its_time_is_run_now(cli: Cli) -> None:
    job_id = cli.enqueue("echo", "--delay-seconds=600")
    assert cli("jobs", "run-now", job_id) == f"{job_id}  echo is ready on default\n"
    assert cli.json("jobs", "run-now", job_id)["status"] == "queued"
    cli.drain()
    assert cli.json("jobs", "show", job_id)["status"] == "succeeded"
    refused = cli.json("jobs", "run-now", job_id, code=1)
    assert refused["code"] == "job_not_waiting"
    assert "is succeeded: only a waiting job can be run now" in cli.err


def test_jobs_are_listed_by_when_they_were_enqueued(cli: Cli) -> None:
    job_id = cli.enqueue("echo")
    for options, found in (
        (("--since=1h",), 1),
        (("--until=1h",), 0),
        (("--since=2020-01-31T08:00:00Z", "--until=2999-01-01"), 1),
        (("--since=2999-01-01T00:00:00+02:00",), 0),
    ):
        assert [job["id"] for job in cli.json("jobs", "list", *options)["jobs"]] == [job_id] * found
    cli("jobs", "list", "--since=yesterday", code=2)
    assert "--since yesterday: not a time such as 2030-01-31T08:00:00Z" in cli.err


@pytest.mark.parametrize(("text", "ago"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("7d", 604_800)])
def test_a_time_may_be_so_long_ago(text: str, ago: int) -> None:
    found = past_of(text, "--since")
    assert found is not None
    assert abs(datetime.now(UTC) - timedelta(seconds=ago) - found) < timedelta(seconds=10)


@pytest.mark.parametrize("text", ["", "2 h", "h", "-2h", "999999d", "10000000s", "nonsense", "2030-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        past_of(text, "--since")
    with pytest.raises(UsageError):
        moment_of(text, "--at")


def test_a_time_that_is_not_given_is_none() -> None:
    assert moment_of(None, "--at") is None
    assert past_of(None, "--since") is None

"""The commands, run for real on SQLite: their output, their JSON and their exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rowlock import Job, Permanent, Rowlock
from rowlock.cli import main
from rowlock.observe import logs

application = Rowlock()


@application.job("echo")
async def echo(job: Job, text: str = "", password: str = "") -> dict[str, str]:
    return {"text": text, "token": "hunter2"}


@application.job("break")
async def break_(job: Job) -> None:
    raise Permanent("broken with token=hunter2")


JOB_KEYS = {
    *("id", "type", "queue", "status", "payload", "priority", "attempts", "maxAttempts", "deaths", "lease"),
    *("visibilityTimeoutMs", "availableAt", "lockedAt", "lockOwner", "createdAt", "startedAt", "finishedAt"),
    *("updatedAt", "progress", "message", "cancelRequested", "result", "error", "guidance", "companyId"),
    *("limitKey", "uniqueKey", "trace"),
}


class Cli:
    """Runs commands in this process, on a database of the test's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run a command, and return what it printed; `err` has the other stream."""
        place = () if arguments[-1].startswith("--database") else (f"--database={self.url}",)
        with pytest.raises(SystemExit) as ended:
            main([*arguments, f"--app={__name__}:application", *place])
        out, self.err = self._capsys.readouterr()
        assert ended.value.code == code, out + self.err
        assert "Traceback" not in self.err
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def enqueue(self, type_name: str, *options: str) -> str:
        job_id: str = self.json("enqueue", type_name, *options)["id"]
        return job_id

    def drain(self) -> None:
        async def work() -> None:
            async with application:
                await application.work(drain=True)

        asyncio.run(work())
        self._capsys.readouterr()

    def failed(self, count: int = 1) -> list[str]:
        """Ids of dead letters."""
        ids = [self.enqueue("break") for _ in range(count)]
        self.drain()
        return ids


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    yield Cli(tmp_path, capsys)
    logs.reset()  # the stream that commands log to is gone after the test


# -- enqueue ---------------------------------------------------------------------------------------


def test_enqueue_sets_up_the_database_and_answers_with_the_id(cli: Cli) -> None:
    line = cli("enqueue", "echo", "--payload", '{"text": "hello"}')
    job_id = line.split()[0]
    assert line == f"{job_id}  echo on default, queued\n"
    assert cli.json("jobs", "show", job_id)["payload"] == {"text": "hello"}


def test_enqueue_answers_a_program_with_the_job(cli: Cli) -> None:
    options = ("--queue=other", "--priority=7", "--delay-seconds=60", "--max-attempts=2", "--company-id=c1")
    job = cli.json("enqueue", "echo", *options)
    assert set(job) == JOB_KEYS | {"created"}
    shown = {key: job[key] for key in ("type", "queue", "status", "payload", "priority", "maxAttempts", "companyId")}
    assert shown == {
        "type": "echo",
        "queue": "other",
        "status": "queued",
        "payload": {},
        "priority": 7,
        "maxAttempts": 2,
        "companyId": "c1",
    }
    assert job["created"] is True
    due, created = (datetime.fromisoformat(job[key]) for key in ("availableAt", "createdAt"))
    assert job["availableAt"].endswith("Z")
    assert (due - created).total_seconds() == pytest.approx(60, abs=0.01)


def test_enqueue_at_a_time(cli: Cli) -> None:
    assert cli.json("enqueue", "echo", "--at", "2031-02-03T04:05:06+01:00")["availableAt"] == "2031-02-03T03:05:06.000Z"


def test_a_payload_from_a_file_and_from_standard_input(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text('{"text": "file"}')
    assert cli.json("enqueue", "echo", "--payload", f"@{tmp_path}/payload.json")["payload"] == {"text": "file"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "input"}')))
    assert cli.json("enqueue", "echo", "--payload", "-")["payload"] == {"text": "input"}


def test_a_duplicate_is_refused_and_named(cli: Cli) -> None:
    first = cli.enqueue("echo", "--unique-key", "nightly")
    refused = cli.json("enqueue", "echo", "--unique-key", "nightly", code=1)
    assert refused["code"] == "duplicate_job"
    assert refused["existingJobId"] == first
    assert cli.err.startswith("error: echo: job ")
    assert first in cli.err
    again = cli.json("enqueue", "echo", "--unique-key", "nightly", "--on-conflict", "return_existing")
    assert (again["id"], again["created"]) == (first, False)
    assert "already exists" in cli("enqueue", "echo", "--unique-key", "nightly", "--on-conflict", "return_existing")


@pytest.mark.parametrize("policy", ["forever", "while_active", "window:60"])
def test_unique_policies_compare_type_and_payload(cli: Cli, policy: str) -> None:
    cli.enqueue("echo", "--unique", policy)
    cli.enqueue("echo", "--unique", policy, "--payload", '{"text": "another"}')
    cli("enqueue", "echo", "--unique", policy, code=1)


def test_waiting_for_a_job_that_nobody_works_on_ends(cli: Cli) -> None:
    job = cli.json("enqueue", "echo", "--wait", "--wait-seconds", "0", code=1)
    assert job["status"] == "queued"
    assert "check that a worker is running" in cli.err


def test_waiting_says_that_no_worker_serves_the_queue(cli: Cli) -> None:
    cli("enqueue", "echo", "--wait", "--wait-seconds", "4", code=1)
    assert "no worker serves the queue default" in cli.err


# -- jobs ------------------------------------------------------------------------------------------


def test_jobs_list_is_a_table_for_people(cli: Cli) -> None:
    assert cli("migrate")
    assert cli("jobs", "list") == "no jobs match\n"
    [failed] = cli.failed()
    waiting = cli.enqueue("echo")
    header, _, first, second = cli("jobs", "list").splitlines()
    assert header.split() == ["id", "type", "queue", "status", "attempts", "when", "note"]
    assert first.split()[:5] == [waiting, "echo", "default", "queued", "0/5"]
    assert second.split()[:5] == [failed, "break", "default", "failed", "1/5"]
    assert "broken with token=[REDACTED]" in second


def test_jobs_list_pages_and_filters_for_programs(cli: Cli) -> None:
    ids = [cli.enqueue("echo", "--queue", queue) for queue in ("a", "a", "b")]
    page = cli.json("jobs", "list", "--limit", "2")
    assert [job["id"] for job in page["jobs"]] == ids[:0:-1]
    assert set(page["jobs"][0]) == JOB_KEYS
    rest = cli.json("jobs", "list", "--limit", "2", "--cursor", page["nextCursor"])
    assert ([job["id"] for job in rest["jobs"]], rest["nextCursor"]) == (ids[:1], None)
    assert len(cli.json("jobs", "list", "--queue", "a")["jobs"]) == 2
    assert cli.json("jobs", "list", "--status", "failed") == {"jobs": [], "nextCursor": None}
    assert cli.json("jobs", "list", "--type", "break")["jobs"] == []
    cli("jobs", "list", "--limit", "2")
    assert cli.err == f"note: there are more: --cursor {page['nextCursor']}\n"


def test_secrets_are_shown_only_when_asked_for(cli: Cli) -> None:
    job_id = cli.enqueue("echo", "--payload", '{"text": "a", "password": "hunter2"}')
    cli.drain()
    shown = cli.json("jobs", "show", job_id)
    assert shown["payload"] == {"text": "a", "password": "[REDACTED]"}
    assert shown["result"] == {"text": "a", "token": "[REDACTED]"}
    for arguments in (("jobs", "show", job_id), ("jobs", "list"), ("jobs", "list", "--json")):
        assert "hunter2" not in cli(*arguments)
    raw = cli.json("jobs", "show", job_id, "--raw")
    assert (raw["payload"]["password"], raw["result"]["token"]) == ("hunter2", "hunter2")
    assert "hunter2" in cli("jobs", "show", job_id, "--raw")


def test_jobs_show_leaves_out_what_has_no_value(cli: Cli) -> None:
    job_id = cli.enqueue("echo")
    fields = dict(line.split(maxsplit=1) for line in cli("jobs", "show", job_id).splitlines())
    assert fields["id"] == job_id
    assert fields["payload"] == "{}"
    assert "error" not in fields


def test_data_cannot_move_the_cursor_of_a_terminal(cli: Cli) -> None:
    job_id = cli.enqueue("echo", "--queue", "[red]markup[/red]", "--payload", '{"text": "\\u001b[2J"}')
    for arguments in (("jobs", "show", job_id, "--raw"), ("jobs", "list"), ("queues", "list")):
        out = cli(*arguments)
        assert "\x1b" not in out
        assert "[red]markup[/red]" in out


def test_a_failed_job_is_retried_and_a_waiting_one_cancelled(cli: Cli) -> None:
    [job_id] = cli.failed()
    assert cli("jobs", "retry", job_id) == f"{job_id}  break is queued again on default\n"
    assert cli("jobs", "cancel", job_id) == f"{job_id}  break is cancelled\n"
    assert cli.json("jobs", "retry", job_id)["status"] == "queued"
    assert cli.json("jobs", "cancel", job_id)["status"] == "cancelled"


def test_what_is_over_or_waits_is_left_alone(cli: Cli) -> None:
    job_id = cli.enqueue("echo")
    assert cli.json("jobs", "retry", job_id, code=1)["code"] == "job_not_retryable"
    cli.drain()
    assert cli.json("jobs", "cancel", job_id, code=1)["code"] == "job_is_over"
    assert cli.err == f"error: job {job_id} is succeeded already; there is nothing to cancel\n"


# -- dead ------------------------------------------------------------------------------------------


def test_dead_list_names_the_reasons(cli: Cli) -> None:
    cli("migrate")
    assert cli("dead", "list") == "no failed jobs\n"
    [job_id] = cli.failed()
    cli.enqueue("echo")
    assert "broken with" in cli("dead", "list")
    assert [job["id"] for job in cli.json("dead", "list", "--type", "break")["jobs"]] == [job_id]
    assert cli.json("dead", "list", "--queue", "other")["jobs"] == []


def test_dead_jobs_are_retried_by_filter_or_id(cli: Cli) -> None:
    ids = cli.failed(3)
    tried = {"dryRun": True, "matched": 3, "retried": 0, "conflicts": [], "nextCursor": None}
    assert cli.json("dead", "retry", "--type", "break", "--dry-run") == tried
    assert cli("dead", "retry", "--all", "--dry-run") == "3 failed jobs match\n"
    done = {"dryRun": False, "matched": 1, "retried": 1, "conflicts": [], "nextCursor": None}
    assert cli.json("dead", "retry", ids[1]) == done
    assert cli("dead", "retry", "--queue", "default") == "2 jobs are queued again\n"
    assert cli("dead", "retry", "--all") == "0 jobs are queued again\n"


def test_dead_jobs_are_discarded(cli: Cli) -> None:
    ids = cli.failed(2)
    tried = {"dryRun": True, "matched": 2, "discarded": 0, "nextCursor": None}
    assert cli.json("dead", "discard", "--all", "--dry-run") == tried
    assert cli("dead", "discard", ids[0]) == "1 jobs are deleted\n"
    done = {"dryRun": False, "matched": 1, "discarded": 1, "nextCursor": None}
    assert cli.json("dead", "discard", "--all", "--yes") == done
    assert cli.json("jobs", "list")["jobs"] == []


def test_a_dead_job_whose_key_is_taken_stays_and_is_named(cli: Cli) -> None:
    first = cli.enqueue("break", "--unique", "while_active", "--unique-key", "k")
    cli.drain()
    cli.enqueue("break", "--unique", "while_active", "--unique-key", "k")
    assert cli.json("dead", "retry", "--all")["conflicts"] == [first]
    assert f"these stay failed: {first}" in cli.err


def test_more_dead_jobs_than_a_batch_holds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.cli.dead._BATCH", 2)
    cli.failed(5)
    assert cli.json("dead", "retry", "--all")["retried"] == 5
    cli.drain()
    assert cli.json("dead", "discard", "--all", "--yes")["discarded"] == 5


def test_ids_that_are_not_dead_are_an_error(cli: Cli) -> None:
    waiting = cli.enqueue("echo")
    assert cli.json("dead", "retry", waiting, code=1)["retried"] == 0
    assert cli.err == "error: 1 of the given ids are not failed jobs, or could not be changed\n"
    assert cli.json("dead", "discard", waiting, code=1)["discarded"] == 0
    assert cli.json("jobs", "show", waiting)["status"] == "queued"


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 1), ("y\n", 0, 0)])
def test_a_person_at_a_terminal_is_asked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    cli.failed()
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli("dead", "discard", "--all", code=code)
    assert "Remove 1 failed jobs?" in cli.err
    assert len(cli.json("dead", "list")["jobs"]) == left


@pytest.mark.parametrize("which", [("--all",), ("--type", "fail"), ("--queue", "default")], ids=" ".join)
def test_where_nobody_can_be_asked_nothing_is_removed_without_yes(cli: Cli, which: tuple[str, ...]) -> None:
    cli.failed()
    cli("dead", "discard", *which, code=2)
    assert "add --yes" in cli.err
    assert len(cli.json("dead", "list")["jobs"]) == 1
    assert cli.json("dead", "discard", *which, "--dry-run")["dryRun"]


# -- queues, store, health -------------------------------------------------------------------------


def test_a_queue_is_paused_and_resumed(cli: Cli) -> None:
    job_id = cli.enqueue("echo")
    assert cli("queues", "pause", "default") == "default is paused\n"
    cli.drain()
    assert cli.json("jobs", "show", job_id)["status"] == "queued"
    [queue] = cli.json("queues", "list")["queues"]
    waited = queue.pop("oldestReadySeconds")
    assert queue == {"name": "default", "paused": True, "ready": 1, "delayed": 0, "processing": 0}
    assert waited >= 0
    assert cli("queues", "list").splitlines()[2].split()[:5] == ["default", "paused", "1", "0", "0"]
    assert cli.json("queues", "resume", "default") == {"name": "default", "paused": False, "known": True}
    cli.drain()
    assert cli.json("jobs", "show", job_id)["status"] == "succeeded"


def test_pausing_a_queue_that_nobody_knows_is_noted(cli: Cli) -> None:
    cli("migrate")
    cli("queues", "pause", "typo")
    assert cli.err == "note: queue 'typo' has no handlers and no waiting jobs; known queues: default\n"


def test_migrate_says_what_it_did(cli: Cli) -> None:
    done = cli.json("migrate")
    assert done["database"] == cli.url
    assert done["applied"][0].startswith("0001_")
    assert done["schema"]["current"] == done["schema"]["wanted"] == len(done["applied"])
    assert cli("migrate") == f"{cli.url} is at schema {len(done['applied'])}; nothing to do\n"


def test_prune_removes_what_the_settings_let_go(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.failed(2)
    nothing = "deleted jobs: 0 succeeded, 0 failed, 0 cancelled\n"
    assert cli("prune") == nothing + "deleted records: 0 failures, 0 locks, 0 runs, 0 access, 0 imports, 0 calls\n"
    kept = application.settings.model_copy(update={"keep_failed_count": 0})
    monkeypatch.setattr(application, "settings", kept)
    removed = cli.json("prune")["removed"]
    assert removed.pop("failed") == 2
    others = ("succeeded", "cancelled", "failures", "locks", "runs", "access", "imports", "calls")
    assert removed == dict.fromkeys(others, 0)


def test_health_tells_what_waits_and_who_works(cli: Cli) -> None:
    cli("migrate")
    found = cli.json("health")
    assert found["status"] == "ok"
    assert found["jobs"] == {"queued": 0, "processing": 0, "succeeded": 0, "failed": 0, "cancelled": 0}
    assert (found["workers"], found["warnings"]) == ([], [])
    cli.enqueue("echo")
    assert cli.json("health")["warnings"] == ["1 jobs are ready on queue default and no worker serves it"]
    text = cli("health")
    assert "1 queued, 0 processing" in text
    assert "no worker serves it" in cli.err


def test_doctor_finds_nothing_wrong_here(cli: Cli) -> None:
    cli("migrate")
    found = cli.json("doctor")
    assert found["ok"] is True
    assert {"settings", "application", "version", "fsync", "schema"} <= {each["check"] for each in found["findings"]}
    assert set(found["findings"][0]) == {"check", "severity", "message", "advice"}


def test_doctor_finds_missing_migrations(cli: Cli) -> None:
    found = cli.json("doctor", code=1)
    wrong = [each for each in found["findings"] if each["severity"] == "error"]
    assert [each["check"] for each in wrong] == ["schema"]
    assert wrong[0]["advice"] == "run `rowlock migrate`"
    assert "error" in cli("doctor", code=1)


def test_doctor_warns_of_work_that_nobody_does(cli: Cli) -> None:
    cli.enqueue("echo", "--queue", "orphaned")
    producer = Rowlock(cli.url, allow_unknown_types=True)
    producer.blocking.enqueue("renamed")
    producer.blocking.close()
    messages = " ".join(each["message"] for each in cli.json("doctor")["findings"])
    assert "no worker serves it" in messages
    assert "1 jobs wait on queue orphaned" in messages
    assert "1 jobs wait for types that no worker serves: renamed" in messages

"""The commands that run workers, started as their users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command as its users do, in a folder of the test's own."""
    started = []

    def popen(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "DATABASE_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "rowlock", *arguments],
            cwd=tmp_path,
            env=own | {"ROWLOCK_APP": "backoffice:app"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield popen
    for process in started:
        process.kill()
        process.communicate()


def test_enqueue_then_worker_needs_no_set_up(start: Start, tmp_path: Path) -> None:
    ping = start("enqueue", "healthPing")
    out, err = ping.communicate()
    assert (ping.returncode, err) == (0, "")
    worker = start("worker", "--drain")
    _, log = worker.communicate()
    assert worker.returncode == 0, log
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert [event for event in events if event.startswith("job.")] == ["job.claimed", "job.started", "job.succeeded"]
    show = start("jobs", "show", out.split()[0], "--json", DATABASE_URL=f"sqlite:///{tmp_path}/rowlock.db")
    job = json.loads(show.communicate()[0])
    assert job["status"] == "succeeded"
    assert job["queue"] == "ai-cfo-jobs"
    assert job["result"]["pong"] is True


def test_a_worker_runs_the_application_of_the_current_directory(start: Start, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from rowlock import Rowlock\n"
        "app = Rowlock()\n"
        "@app.job('sell', queue='till')\n"
        "async def sell(job): return {'sold': True}\n"
    )
    chosen = {"ROWLOCK_APP": "shop", "DATABASE_URL": "sqlite:///shop.db"}
    assert start("enqueue", "sell", **chosen).wait() == 0
    worker = start("worker", "--drain", "--queue", "till", "--processes", "2", "--concurrency", "1", **chosen)
    log = worker.communicate()[1]
    assert worker.returncode == 0, log
    assert '"event":"job.succeeded"' in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_what_runs_and_stops_when_told(start: Start, number: signal.Signals) -> None:
    up = start("up", "--json", "--port", "0")
    assert up.stdout is not None
    assert up.stderr is not None
    told = json.loads(up.stdout.readline())
    assert told["database"] == "sqlite:///rowlock.db"
    assert {"demo.sleep", "generateMonthlySnapshots", "healthPing"} <= set(told["types"])
    assert told["queues"] == ["ai-cfo-jobs", "imports"]
    assert "customers" in told["imports"]
    assert told["enqueue"] == "rowlock enqueue healthPing --app backoffice:app"
    assert any("worker.started" in line for line in iter(up.stderr.readline, ""))
    up.send_signal(number)
    _, log = up.communicate()
    assert up.returncode == 0, log


def test_enqueue_waits_for_a_job_that_a_worker_runs(start: Start) -> None:
    up = start("up", "--no-api")
    assert up.stdout is not None
    told = [line.split(maxsplit=1) for line in iter(up.stdout.readline, "stop         Ctrl-C\n")]
    assert [words[0] for words in told] == ["application", "imports", "sync", "database", "workers", "first", "look"]
    ping = start("enqueue", "healthPing", "--wait", "--json")
    job = json.loads(ping.communicate()[0])
    assert (ping.returncode, job["status"]) == (0, "succeeded")
    up.terminate()
    _, log = up.communicate()
    assert up.returncode == 0, log


def test_what_a_handler_logs_by_the_standard_library_is_a_line_with_its_job(start: Start, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging, warnings\n"
        "from rowlock import Rowlock\n"
        "logging.basicConfig(format='raw %(message)s')\n"
        "app = Rowlock()\n"
        "@app.job('sell')\n"
        "async def sell(job):\n"
        "    logging.getLogger('till').info('sold for %d', 5)\n"
        "    logging.getLogger('till').warning('token=c4n4ry')\n"
        "    warnings.warn('old till')\n"
    )
    chosen = {"ROWLOCK_APP": "shop", "DATABASE_URL": "sqlite:///shop.db"}
    enqueued = start("enqueue", "sell", **chosen)
    job_id = enqueued.communicate()[0].split()[0]
    _, log = start("worker", "--drain", **chosen).communicate()
    lines = [json.loads(line) for line in log.splitlines()]
    about = [line for line in lines if line.get("job") == job_id and "logger" in line]
    assert [(line["event"], line["level"], line["logger"]) for line in about[:2]] == [
        ("sold for 5", "info", "till"),
        ("token=[REDACTED]", "warning", "till"),
    ]
    assert "UserWarning: old till" in about[2]["event"]
    assert {line["type"] for line in about} == {"sell"}

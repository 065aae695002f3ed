"""`rowlock init`: what it writes runs, what it prints works, and no file is overwritten."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., subprocess.Popen[str]]

FILES = ("app.py", "contacts.csv", "test_app.py")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command line as a shell in the folder would."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "DATABASE_", "PYTEST_"))
    }
    own["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), own["PATH"]))
    started = []

    def popen(line: str, folder: Path = tmp_path, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            shlex.split(line),
            cwd=folder,
            env=own | environment,
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


@pytest.fixture
def run(start: Start) -> Callable[..., str]:
    def run(line: str, *place: Path, code: int = 0) -> str:
        process = start(line, *place)
        out, err = process.communicate()
        assert process.returncode == code, out + err
        return err if code else out

    return run


def test_what_it_prints_works_as_printed(start: Start, run: Callable[..., str], tmp_path: Path) -> None:
    printed = run("rowlock init 'my shop'")
    commands = [line.strip() for line in printed.splitlines() if line.startswith("    ")]
    enter, up, again, *use = commands
    assert (enter, again) == ("cd 'my shop'", enter)
    folder = tmp_path / "my shop"
    running = start(up, folder, ROWLOCK_HTTP_PORT="0")
    assert running.stdout is not None
    told = dict(line.split(maxsplit=1) for line in iter(running.stdout.readline, "stop         Ctrl-C\n"))
    assert told["imports"] == "contacts\n"

    outputs = {line.split()[0] + " " + line.split()[1]: run(line, folder) for line in use}
    assert outputs["rowlock enqueue"].rstrip().endswith("email.send on default, succeeded")
    assert "SUCCEEDED" in outputs["rowlock import"]
    assert "email.send" in outputs["rowlock jobs"]
    assert "3 passed" in outputs["python -m"]

    (found,) = json.loads(run("rowlock imports list --json --app app:app", folder))["imports"]
    assert (found["status"], found["summary"]["inserted"], found["summary"]["failed"]) == ("SUCCEEDED", 3, 0)
    (schedule,) = json.loads(run("rowlock schedules list --json --app app:app", folder))["schedules"]
    assert (schedule["name"], schedule["jobType"]) == ("daily-digest", "digest.send")
    running.send_signal(signal.SIGTERM)
    _, log = running.communicate()
    assert running.returncode == 0, log


def test_a_worker_does_its_jobs(run: Callable[..., str], tmp_path: Path) -> None:
    assert json.loads(run("rowlock init --json"))["files"] == list(FILES)
    run("rowlock enqueue digest.send --app app:app")
    run("""rowlock enqueue email.send --payload '{"to": "nobody", "subject": "Hi"}' --app app:app""")
    run("rowlock worker --drain --app app:app")
    jobs = json.loads(run("rowlock jobs list --json"))["jobs"]
    ended: list[tuple[Any, ...]] = sorted((job["type"], job["status"], job["payload"].get("to")) for job in jobs)
    assert ended == [
        ("digest.send", "succeeded", None),
        ("email.send", "failed", "nobody"),
        ("email.send", "succeeded", "team@example.com"),
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_exists_is_kept_and_nothing_is_written(run: Callable[..., str], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    err = run("rowlock init", code=2)
    assert err.startswith(f"error: there is already {name}: nothing was written")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_link_that_leads_nowhere_is_not_followed(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "app.py").symlink_to(tmp_path / "elsewhere.py")
    assert "app.py" in run("rowlock init", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


def test_a_folder_that_cannot_be_made_is_a_mistake(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file")
    assert run("rowlock init shop", code=2).startswith("error: shop")
    assert (tmp_path / "shop").read_text() == "a file"

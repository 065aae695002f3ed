"""Which commands need an application, and what the others do without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rowlock import Job, Rowlock
from rowlock.cli import app as commands
from rowlock.cli import main
from rowlock.observe import logs

ID = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"

application = Rowlock()


@application.job("echo")
async def echo(job: Job) -> None: ...


NEEDS_ONE = (
    *("up", "serve", "worker", "enqueue echo", "import file.csv", f"imports resume {ID}"),
    *("sync list", "sync stats", "sync monitor", "sync send crm keep", "schedules resume nightly"),
    *("schedules run nightly", f"jobs retry {ID}", "dead retry --all", f"failures retry {ID}", "prune"),
)
NEEDS_NONE = {
    # command: its exit code on an empty, migrated database
    **dict.fromkeys(("migrate", "health", "doctor", "metrics", "token list", "token create --name ci"), 0),
    **dict.fromkeys(("jobs list", "dead list", "dead discard --all --yes", "failures list", "imports list"), 0),
    **dict.fromkeys(("schedules list", "schedules runs", "queues list", "queues pause q", "queues resume q"), 0),
    **dict.fromkeys((f"jobs {name} {ID}" for name in ("show", "cancel", "run-now", "timeline")), 1),
    **dict.fromkeys((f"imports {name} {ID}" for name in ("show", "errors", "cancel")), 1),
    **dict.fromkeys((f"failures show {ID}", f"token revoke {ID}"), 1),
    "schedules pause nightly": 2,
    "init": 0,
}


class Cli:
    """Runs commands in this process, in an empty folder, with no application named in the environment."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return ended.value.code, *self._capsys.readouterr()

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROWLOCK_APP", raising=False)
    monkeypatch.setenv("DATABASE_URL", "sqlite:///jobs.db")
    yield Cli(capsys)
    logs.reset()  # the stream that commands log to is gone after the test


def test_every_command_is_one_or_the_other() -> None:
    def names(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from names(command, (*path, name))
            else:
                yield " ".join((*path, name))

    known = set(names(typer.main.get_command(commands)))
    told = [next(name for name in known if f"{line} ".startswith(f"{name} ")) for line in (*NEEDS_ONE, *NEEDS_NONE)]
    assert len(told) == len(set(told))
    assert set(told) == known


@pytest.mark.parametrize("line", NEEDS_ONE)
def test_a_command_that_needs_an_application_says_how_to_name_one(cli: Cli, tmp_path: Path, line: str) -> None:
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert err == (
        "error: this command needs an application: give --app MODULE:ATTR or set ROWLOCK_APP; "
        "`rowlock init` writes one to start from\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", NEEDS_NONE)
def test_a_command_that_needs_none_works_on_the_database(cli: Cli, line: str) -> None:
    assert cli("migrate")[0] == 0
    code, _, err = cli(*line.split())
    assert code == NEEDS_NONE[line], err
    assert "application" not in err


@pytest.mark.parametrize("line", ["jobs list", "enqueue echo"])
def test_an_application_that_is_named_and_not_there_is_an_error_for_every_command(cli: Cli, line: str) -> None:
    assert cli("migrate")[0] == 0
    code, _, err = cli(*line.split(), "--app", "nowhere:app")
    assert code == 2
    assert err.startswith("error: --app nowhere:app: there is no module 'nowhere'")


def test_an_empty_variable_names_no_application(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_APP", "")
    assert cli("migrate")[0] == 0
    code, _, err = cli("worker")
    assert code == 2
    assert "needs an application" in err


def test_jobs_and_queues_of_an_application_are_seen_without_it(cli: Cli) -> None:
    assert cli("migrate")[0] == 0
    assert cli.json("queues", "list") == {"queues": []}
    job = cli.json("enqueue", "echo", "--app", f"{__name__}:application", "--database", "sqlite:///jobs.db")
    assert [found["id"] for found in cli.json("jobs", "list")["jobs"]] == [job["id"]]
    assert [queue["name"] for queue in cli.json("queues", "list")["queues"]] == ["default"]
    found = cli.json("health")
    assert found["warnings"] == ["1 jobs are ready on queue default and no worker serves it"]
    assert found["unservedTypes"] == []
    assert cli.json("jobs", "cancel", job["id"])["status"] == "cancelled"


def test_doctor_says_that_it_looked_at_no_application(cli: Cli) -> None:
    assert cli("migrate")[0] == 0
    found = cli.json("doctor")
    assert found["ok"] is True
    (told,) = [each for each in found["findings"] if each["check"] == "application"]
    assert told["severity"] == "warning"
    assert "ROWLOCK_APP" in told["advice"]

"""Invalid input: a clear one-line message and an exit code each, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from rowlock.cli import main
from rowlock.observe import logs


class Cli:
    """Runs commands in this process; what they print is kept."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self._capsys = capsys

    def __call__(self, *arguments: str, database: str | None = None, app: str = "backoffice:app") -> tuple[int, str]:
        """Run a command: its exit code, and its one line on standard error."""
        with pytest.raises(SystemExit) as ended:
            main([*arguments, f"--database={database or self.url}", f"--app={app}"])
        self.out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert err.count("\n") <= 1, err
        return ended.value.code, err.removeprefix("error: ").strip()

    def count(self) -> int:
        with pytest.raises(SystemExit):
            main(["jobs", "list", "--json", f"--database={self.url}"])
        answer: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return len(answer["jobs"])


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    yield Cli(tmp_path, capsys)
    logs.reset()  # the stream that commands log to is gone after the test


def test_an_unknown_type_is_refused_with_a_suggestion(cli: Cli) -> None:
    code, message = cli("enqueue", "demo.slep")
    assert (code, message) == (
        2,
        "no handler is registered for job type 'demo.slep'; did you mean 'demo.sleep'?",
    )
    assert cli.count() == 0


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("{", "--payload is not JSON: "),
        ("", "--payload is not JSON: "),
        ('{"seconds": NaN}', "--payload is not JSON: "),
        ("[1]", "demo.sleep: the payload must be an object (a dict), not list"),
        ('{"seconds": "soon"}', "demo.sleep: seconds: Input should be a valid number"),
        ('{"secs": 1}', "demo.sleep: secs: Extra inputs are not permitted"),
        ("@nowhere.json", "--payload @nowhere.json: No such file or directory"),
    ],
)
def test_a_payload_that_the_handler_does_not_take(cli: Cli, payload: str, message: str) -> None:
    code, told = cli("enqueue", "demo.sleep", "--payload", payload)
    assert code == 2
    assert told.startswith(message)
    assert cli.count() == 0


@pytest.mark.parametrize("size", [1_048_577, 3_000_000])
def test_a_payload_that_is_too_large(cli: Cli, tmp_path: Path, size: int) -> None:
    content = b'{"text":"' + b"x" * (size - 11) + b'"}'
    assert len(content) == size
    (tmp_path / "large.json").write_bytes(content)
    code, message = cli("enqueue", "healthPing", "--payload", f"@{tmp_path}/large.json")
    assert code == 2
    assert "1,048,576" in message
    assert cli.count() == 0


def test_a_payload_at_the_limit_is_taken(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b'{"text":"' + b"x" * (1_048_576 - 11) + b'"}')
    code, _ = cli("enqueue", "healthPing", "--payload", f"@{tmp_path}/large.json")
    assert code == 0
    assert cli.count() == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--at", "tomorrow"), "--at tomorrow: not a time such as 2030-01-31T08:00:00Z"),
        (("--unique", "often"), "--unique often: must be none, forever, while_active or window:SECONDS"),
        (("--unique", "window:soon"), "--unique window:soon: 'soon' is not a number of seconds"),
        (("--unique", "window:0"), "--unique window:0: must be more than 0 seconds"),
        (("--delay-seconds", "-1"), "healthPing: delay_seconds must be 0 to 316224000, not -1.0"),
        (("--priority", "40000"), "healthPing: priority must be -32768 to 32767, not 40000"),
        (("--priority", "high"), "Invalid value for '--priority'"),
        (("--max-attempts", "0"), "healthPing: max_attempts must be 1 to 1000, not 0"),
        (("--queue", ""), "queue '': must be 1 to 200 printable characters"),
        (("--bogus",), "No such option: --bogus"),
    ],
)
def test_options_out_of_their_limits(cli: Cli, option: tuple[str, ...], message: str) -> None:
    code, told = cli("enqueue", "healthPing", *option)
    assert code == 2
    assert told.startswith(message)


@pytest.mark.parametrize(
    "command", [("enqueue", "healthPing"), ("worker",), ("migrate",), ("jobs", "list"), ("up", "--port=0")]
)
def test_a_wrong_url(cli: Cli, command: tuple[str, ...]) -> None:
    code, message = cli(*command, database="mysql://localhost/jobs")
    assert code == 2
    assert message.startswith("DATABASE_URL: 'mysql' is not a supported database; use sqlite:///file.db")


@pytest.mark.parametrize(
    "command", [("enqueue", "healthPing"), ("worker",), ("migrate",), ("health",), ("up", "--port=0")]
)
def test_a_database_that_is_down(cli: Cli, command: tuple[str, ...]) -> None:
    code, message = cli(*command, "--json", database="postgresql://someone:hunter2@127.0.0.1:1/jobs")
    assert code == 1
    assert "127.0.0.1:1/jobs is not available" in message
    assert "hunter2" not in message
    assert json.loads(cli.out)["code"] == "store_unavailable"


def test_doctor_finds_a_database_that_is_down(cli: Cli) -> None:
    code, _ = cli("doctor", "--json", database="postgresql://127.0.0.1:1/jobs")
    [wrong] = [each for each in json.loads(cli.out)["findings"] if each["severity"] == "error"]
    assert code == 1
    assert wrong["check"] == "database"
    assert "is not available" in wrong["message"]


def test_a_folder_that_does_not_exist(cli: Cli) -> None:
    code, message = cli("enqueue", "healthPing", database="sqlite:////nowhere/jobs.db")
    assert code == 1
    assert message.startswith("/nowhere/jobs.db cannot be opened: check that its folder exists")


def test_a_read_only_file(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("migrate")[0] == 0
    # A real read-only file would not stop root, as whom tests run in containers.
    monkeypatch.setattr(apsw, "Connection", partial(apsw.Connection, flags=apsw.SQLITE_OPEN_READONLY))
    for command in (("enqueue", "healthPing"), ("worker",), ("migrate",)):
        code, message = cli(*command)
        assert code == 1
        assert "jobs.db is read-only: give this user write permission for the file and its folder" in message


def test_a_file_that_is_no_database(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("name,email\n" * 1_000)
    code, message = cli("enqueue", "healthPing")
    assert code == 1
    assert "is not a SQLite database" in message


def test_a_store_that_another_process_keeps_locked(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("migrate")[0] == 0
    monkeypatch.setattr("rowlock.storage.sqlite.connection.BUSY_SECONDS", 0.01)
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    try:
        other.execute("BEGIN IMMEDIATE")
        code, message = cli("enqueue", "healthPing")
    finally:
        other.close()
    assert code == 1
    assert "is locked" in message


def test_two_migrations_at_once_both_succeed_and_one_does_the_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rowlock", "migrate", "--json", f"--database=sqlite:///{tmp_path}/jobs.db"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(len(answer["applied"]) for answer in answers) == [0, answers[0]["schema"]["wanted"]]


def test_an_empty_database_is_not_read_before_it_is_migrated(cli: Cli) -> None:
    for command in (("jobs", "list"), ("dead", "list"), ("queues", "list"), ("prune",), ("health",)):
        code, message = cli(*command, "--json")
        assert code == 1
        assert message.endswith("run `rowlock migrate`")
        assert json.loads(cli.out)["code"] == "schema_missing"


def test_a_schema_of_a_newer_release_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli("enqueue", "healthPing")[0] == 0
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    record = "INSERT INTO migrations SELECT max(number) + 1, 'next', '', {}, 0 FROM migrations"
    connection.execute(record.format("max(number)"))
    (after,) = connection.execute("SELECT max(number) FROM migrations").fetchone()
    assert cli("enqueue", "healthPing")[0] == 0, "the next schema only expands ours"
    assert cli("migrate") == (0, "")
    assert cli.out.endswith(
        f"is at schema {after}, of a newer release; this one has {after - 1} and works with it; nothing to do\n"
    )
    connection.execute(record.format("max(number) + 1"))
    connection.close()
    for command in (("enqueue", "healthPing"), ("worker", "--drain"), ("migrate",)):
        code, message = cli(*command)
        assert code == 1
        assert "a newer release has migrated the store" in message


def test_a_worker_without_handlers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handlerless.py").write_text("from rowlock import Rowlock\napp = Rowlock()\n")
    monkeypatch.chdir(tmp_path)
    assert cli("enqueue", "healthPing")[0] == 0
    code, message = cli("worker", "--drain", app="handlerless:app")
    assert code == 2
    assert message.startswith("handlerless:app has no handlers: declare some with @app.job(...)")
    assert cli.count() == 1


def test_a_worker_without_handlers_for_a_queue(cli: Cli) -> None:
    code, message = cli("worker", "--drain", "--queue", "typo")
    assert code == 2
    assert message == (
        "backoffice:app has no handlers for queue 'typo' (its queues: ai-cfo-jobs, imports): "
        "correct the name, or declare the queue with app.queue('typo')"
    )


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("nowhere:app", "--app nowhere:app: there is no module 'nowhere', neither in "),
        ("backoffice:nothing", "--app backoffice:nothing: module 'backoffice' has no 'nothing'"),
        ("backoffice:QUEUE", "--app backoffice:QUEUE: it is a str, not a Rowlock application"),
        ("broken:app", "--app broken:app: importing it failed: ZeroDivisionError: division by zero"),
        ("lacking:app", "--app lacking:app: importing it failed: ModuleNotFoundError: No module named 'not_here'"),
    ],
)
def test_an_application_that_cannot_be_imported(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "lacking.py").write_text("import not_here")
    monkeypatch.chdir(tmp_path)
    code, told = cli("worker", app=app)
    assert code == 2
    assert told.startswith(message)
    assert cli("doctor", app=app)[0] == 1


def test_a_setting_that_is_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rowlock", "enqueue", "healthPing"]
    place = {"QUEUE_POLL_MS": "soon", "ROWLOCK_APP": "backoffice:app"}
    done = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: QUEUE_POLL_MS: Input should be a valid integer")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("jobs", "show"), ("jobs", "retry"), ("jobs", "cancel")])
@pytest.mark.parametrize("job_id", ["nobody", "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"])
def test_a_job_that_does_not_exist(cli: Cli, command: tuple[str, ...], job_id: str) -> None:
    assert cli("migrate")[0] == 0
    code, message = cli(*command, job_id, "--json")
    assert code == 1
    assert message.startswith(f"no job has the id {job_id}")
    assert json.loads(cli.out) == {"code": "job_not_found", "message": message}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("dead", "retry"), "no jobs selected: give ids, --type, --queue, --reason, or --all"),
        (("dead", "discard"), "no jobs selected: give ids, --type, --queue, --reason, or --all"),
        (("dead", "discard", "--all", "--type", "x"), "--all means every failed job: remove --all, or remove the ids"),
        (("jobs", "list", "--cursor", "x"), "'x' is not a cursor of this list"),
        (("dead", "list", "--cursor", "x"), "'x' is not a cursor of this list"),
        (("jobs", "list", "--limit", "0"), "Invalid value for '--limit'"),
        (("jobs", "list", "--status", "done"), "Invalid value for '--status'"),
        (("queues", "pause", ""), "queue '': must be 1 to 200 printable characters"),
        (("worker", "--processes", "0"), "Invalid value for '--processes'"),
        (("up", "--port", "99999"), "Invalid value for '--port'"),
    ],
)
def test_commands_that_do_not_say_enough(cli: Cli, command: tuple[str, ...], message: str) -> None:
    assert cli("migrate")[0] == 0
    code, told = cli(*command, "--json")
    assert code == 2
    assert told.startswith(message)
    assert set(json.loads(cli.out)) == {"code", "message"}


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["wroker"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: No such command 'wroker'")


def test_a_fault_of_ours_shows_no_stack_trace_unless_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("migrate")[0] == 0

    def fault(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("rowlock.cli.jobs.show_page", fault)
    code, message = cli("jobs", "list", "--json")
    assert (code, message) == (1, "unexpected KeyError: 'ours' (ROWLOCK_DEBUG=1 shows the traceback)")
    assert json.loads(cli.out)["code"] == "bug"
    monkeypatch.setenv("ROWLOCK_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["jobs", "list", f"--database={cli.url}"])


def test_a_reader_that_goes_away_is_no_fault() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rowlock", "--version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait() in (0, 1)

"""The commands about imports, run for real on SQLite: files in, totals and errors out."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rowlock import Rowlock
from rowlock.cli import main
from rowlock.observe import logs

application = Rowlock()
NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


class Customer(BaseModel):
    email: str = Field(pattern=r"^[^@ ]+@[^@ ]+$")
    name: str | None = None


application.importer("customers", row=Customer, key=["email"], into="customers")

GOOD = "email,name\nada@example.org,Ada\ngrace@example.org,Grace\n"
MIXED = GOOD + "=nobody,Eve\n"


class Cli:
    """Runs commands in this process, on a database and an import store of the test's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._place = (f"--app={__name__}:application", f"--database=sqlite:///{folder}/jobs.db")
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *self._place])
        out, self.err = self._capsys.readouterr()
        assert ended.value.code == code, out + self.err
        assert "Traceback" not in self.err
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def file(self, text: str = GOOD, name: str = "customers.csv") -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def drain(self) -> None:
        async def work() -> None:
            async with application:
                await application.work(drain=True)

        asyncio.run(work())
        self._capsys.readouterr()

    def imported(self, text: str = GOOD, *options: str) -> str:
        """The id of an import that is over."""
        found: str = self.json("import", self.file(text), "--type=customers", "--force", *options)["id"]
        self.drain()
        return found


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    before = application.settings
    application.settings = before.model_copy(
        update={"import_store": str(tmp_path / "files"), "import_manifest": str(tmp_path / "manifest.json")}
    )
    yield Cli(tmp_path, capsys)
    application.settings = before
    logs.reset()  # the stream that commands log to is gone after the test


def test_import_answers_with_the_id(cli: Cli) -> None:
    line = cli("import", cli.file(), "--type=customers")
    assert line == f"{line.split()[0]}  customers.csv as customers, QUEUED\n"
    told = cli.json("imports", "show", line.split()[0])
    assert (told["status"], told["type"], told["sizeBytes"]) == ("QUEUED", "customers", len(GOOD))


def test_import_takes_what_is_said_about_the_file(cli: Cli) -> None:
    options = ("--type=customers", "--company=acme", "--project=p1", "--sheet=S", "--dry-run")
    told = cli.json("import", cli.file(), *options)
    assert (told["companyId"], told["projectId"], told["sheetName"], told["dryRun"]) == ("acme", "p1", "S", True)


def test_the_manifest_says_which_type(cli: Cli) -> None:
    (cli.folder / "manifest.json").write_text('{"cust*.csv": {"type": "customers"}}')
    assert cli.json("import", cli.file())["type"] == "customers"


def test_the_rows_are_in_the_table_and_what_became_of_them_is_shown(cli: Cli) -> None:
    found = cli.imported(MIXED)
    shown = cli("imports", "show", found)
    assert "SUCCEEDED" in shown
    assert "nobody" in shown
    told = cli.json("imports", "show", found)
    counts = {name: told["summary"][name] for name in ("totalRows", "inserted", "updated", "unchanged", "failed")}
    assert counts == {"totalRows": 3, "inserted": 2, "updated": 0, "unchanged": 0, "failed": 1}
    again = cli.json("imports", "show", cli.imported(MIXED))
    assert (again["summary"]["inserted"], again["summary"]["unchanged"]) == (0, 2)


def test_import_waits_for_a_worker_and_gives_up(cli: Cli) -> None:
    out = cli("import", cli.file(), "--type=customers", "--wait", "--wait-seconds=0", code=1)
    assert "QUEUED" in out
    assert "check that a worker is running" in cli.err


def test_waiting_for_an_import_says_that_no_worker_serves_its_queue(cli: Cli) -> None:
    cli("import", cli.file(), "--type=customers", "--wait", "--wait-seconds=4", code=1)
    assert "no worker serves the queue imports" in cli.err


def test_errors_are_shown_paged_and_written(cli: Cli) -> None:
    found = cli.imported(MIXED + "x y,Mallory\n")
    assert "row" in cli("imports", "errors", found)
    first = cli.json("imports", "errors", found, "--limit=1")
    assert [error["row"] for error in first["errors"]] == [4]
    rest = cli.json("imports", "errors", found, f"--after-row={first['nextRow']}")
    assert [error["row"] for error in rest["errors"]] == [5]
    assert "--after-row 4" in (cli("imports", "errors", found, "--limit=1") and cli.err)
    written = cli.folder / "errors.csv"
    assert f"{written} is written" in cli("imports", "errors", found, "--csv", str(written))
    rows = list(csv.reader(io.StringIO(written.read_bytes().decode("utf-8-sig"), newline="")))
    assert rows[0] == ["email", "name", "row", "column", "reason"]
    assert rows[1][:4] == ["'=nobody", "Eve", "4", "email"]
    assert len(rows) == 3
    cli("imports", "errors", found, "--csv", str(cli.folder / "none" / "errors.csv"), code=2)
    cli("imports", "errors", NOBODY, "--csv", str(cli.folder / "nothing.csv"), code=1)
    assert not (cli.folder / "nothing.csv").exists()


def test_imports_are_listed(cli: Cli) -> None:
    first, second = cli.imported(), cli.json("import", cli.file(MIXED), "--type=customers", "--company=acme")["id"]
    assert [each["id"] for each in cli.json("imports", "list")["imports"]] == [second, first]
    assert [each["id"] for each in cli.json("imports", "list", "--status=succeeded")["imports"]] == [first]
    assert [each["id"] for each in cli.json("imports", "list", "--company=acme")["imports"]] == [second]
    assert cli("imports", "list", "--type=nothing") == "no imports match\n"
    page = cli("imports", "list", "--limit=1")
    assert second in page
    assert "there are more: --cursor" in cli.err
    cli("imports", "list", "--cursor=nonsense", code=2)


def test_an_import_is_cancelled_and_resumed(cli: Cli) -> None:
    found = cli.json("import", cli.file(), "--type=customers")["id"]
    assert cli("imports", "cancel", found) == f"{found}  customers.csv is CANCELLED\n"
    cli("imports", "cancel", found, code=1)
    assert "CANCELLED already" in cli.err
    assert cli.json("imports", "resume", found)["status"] == "QUEUED"
    cli.drain()
    assert cli.json("imports", "show", found)["status"] == "SUCCEEDED"
    cli("imports", "resume", found, code=1)


@pytest.mark.parametrize("command", ["show", "errors", "resume", "cancel"])
def test_an_import_that_is_not_there(cli: Cli, command: str) -> None:
    cli("migrate")
    told = cli.json("imports", command, NOBODY, code=1)
    assert told["code"] == "import_not_found"


@pytest.mark.parametrize(
    ("name", "text", "options", "code", "told"),
    [
        ("a.csv", GOOD, ("--type=custmers",), 2, "unknown_import_type"),
        ("a.csv", GOOD, (), 2, "unknown_import_type"),
        ("a.xlsx", GOOD, ("--type=customers",), 1, "file_content_mismatch"),
        ("a.pdf", GOOD, ("--type=customers",), 1, "file_type_unknown"),
        ("a.csv", "", ("--type=customers",), 1, "file_empty"),
        ("a.csv", GOOD, ("--type=customers", "--company="), 2, "bad_setting"),
    ],
)
def test_a_file_that_is_refused(cli: Cli, name: str, text: str, options: tuple[str, ...], code: int, told: str) -> None:
    assert cli.json("import", cli.file(text, name), *options, code=code)["code"] == told
    assert [path for path in (cli.folder / "files").rglob("*") if path.is_file()] == []


def test_a_file_that_is_not_there_is_a_wrong_command(cli: Cli) -> None:
    cli("import", str(cli.folder / "none.csv"), "--type=customers", code=2)
    assert "none.csv: no such file" in cli.err


def test_the_same_file_again_is_refused_with_the_earlier_import_unless_forced(cli: Cli) -> None:
    first = cli.json("import", cli.file(), "--type=customers")["id"]
    told = cli.json("import", cli.file(), "--type=customers", code=1)
    assert (told["code"], told["existingImportId"]) == ("duplicate_import", first)
    assert cli.json("import", cli.file(), "--type=customers", "--force")["id"] != first


@pytest.mark.parametrize("wrong", ["s3://bucket/prefix", "file", "file/below", " "])
def test_an_import_store_that_cannot_be_used_is_seen_before_the_first_import(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    (cli.folder / "file").write_text("")
    store = str(cli.folder / wrong) if wrong.startswith("file") else wrong
    monkeypatch.setattr(application, "settings", application.settings.model_copy(update={"import_store": store}))
    cli("migrate")
    found = cli.json("health")
    assert found["status"] == "warning"
    (warning,) = found["warnings"]
    assert warning.startswith("this process cannot store the files of imports: ROWLOCK_IMPORT_STORE: ")
    seen = [one for one in cli.json("doctor", code=1)["findings"] if one["check"] == "imports"]
    assert [one["severity"] for one in seen] == ["error"]


def test_an_import_store_that_is_made_by_the_first_import_is_fine(cli: Cli) -> None:
    cli("migrate")
    assert cli.json("health")["warnings"] == []
    assert not any(one["check"] == "imports" for one in cli.json("doctor")["findings"])


def test_a_text_file_is_read_as_delimited_text(cli: Cli) -> None:
    told = cli.json("import", cli.file(GOOD.replace(",", "\t"), "customers.txt"), "--type=customers")
    cli.drain()
    assert cli.json("imports", "show", told["id"])["status"] == "SUCCEEDED"

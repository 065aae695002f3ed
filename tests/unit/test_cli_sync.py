"""The commands about outbound sync, run for real on SQLite, against a small service on a port."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from rowlock import Integration, Rowlock
from rowlock.cli import main
from rowlock.cli.worker import checked_queues
from rowlock.observe import logs
from sync.service import Reply, Service, serving
from web.syncing import SCOPES_URL, SECRET, declare_crm, refuses

application = Rowlock()  # with its integration, while a test runs
lonely = Rowlock()
ADA = '--payload={"email": "ada@example.org"}'


class Cli:
    """Runs commands in this process, on a database of the test's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], service: Service) -> None:
        self._service = service
        self._database = f"--database=sqlite:///{folder}/jobs.db"
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0, app: str = "application") -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, f"--app={__name__}:{app}", self._database])
        out, self.err = self._capsys.readouterr()
        assert ended.value.code == code, out + self.err
        assert "Traceback" not in self.err
        assert SECRET not in out + self.err
        return out

    def json(self, *arguments: str, code: int = 0, app: str = "application") -> Any:
        return json.loads(self(*arguments, "--json", code=code, app=app))

    def drain(self, reply: Reply) -> None:
        """Have all that waits done, by a service that answers so."""

        async def work() -> None:
            async with application:
                await application.work(drain=True)

        self._service.answer = lambda asked: reply
        asyncio.run(work())
        self._capsys.readouterr()


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in a thread of its own: commands bring their own event loops."""
    loop, made, over = asyncio.new_event_loop(), Queue[Service](), asyncio.Event()

    async def serve() -> None:
        async with serving() as service:
            made.put(service)
            await over.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    yield made.get(timeout=60)
    loop.call_soon_threadsafe(over.set)
    thread.join(60)
    loop.close()


@pytest.fixture
def hub(service: Service, monkeypatch: pytest.MonkeyPatch) -> Integration:
    app = Rowlock()
    monkeypatch.setitem(globals(), "application", app)
    return declare_crm(app, base_url=service.url)


@pytest.fixture
def cli(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    service: Service,
    hub: Integration,
) -> Iterator[Cli]:
    monkeypatch.setenv("DATABASE_URL", "set by commands, restored by the fixture")
    yield Cli(tmp_path, capsys, service)
    logs.reset()  # the stream that commands log to is gone after the test


@pytest.fixture
def disabled(hub: Integration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "disabled", "set CRM_TOKEN")


def test_integrations_are_listed(cli: Cli) -> None:
    cli("migrate")
    rows = [line.split() for line in cli("sync", "list").splitlines()[2:]]
    assert rows == [
        ["crm", "create_contact", "ok", "5", "member_creation_{email}"],
        ["crm", "update_contact", "ok", "5"],
        ["crm", "create_deal", "skipped", "7"],
    ]
    assert cli.json("sync", "list")["integrations"][0]["scopesUrl"] == SCOPES_URL
    assert cli.err == ""


def test_a_disabled_one_says_what_enables_it(cli: Cli, disabled: None) -> None:
    cli("migrate")
    assert "disabled" in cli("sync", "list")
    assert cli.err == "note: crm is disabled: set CRM_TOKEN\n"
    assert cli("sync", "monitor").startswith("crm         ")
    told = cli.json("sync", "send", "crm", "create_contact", ADA, code=1)
    assert told == {"code": "integration_disabled", "message": "crm is disabled: set CRM_TOKEN"}


def test_send_answers_with_the_job(cli: Cli) -> None:
    line = cli("sync", "send", "crm", "create_contact", ADA)
    job_id = line.split()[0]
    assert line == f"{job_id}  crm.create_contact on crm, queued\n"
    again = cli("sync", "send", "crm", "create_contact", ADA, "--priority=1")
    assert again == f"{job_id}  already exists: crm.create_contact on crm, queued\n"
    options = ("--priority=3", "--delay-seconds=60", "--company-id=acme")
    told = cli.json("sync", "send", "crm", "create_contact", ADA, *options)
    assert (told["priority"], told["companyId"], told["created"]) == (3, "acme", True)
    assert told["availableAt"] > told["createdAt"]


def test_send_waits_and_gives_up(cli: Cli) -> None:
    cli("sync", "send", "crm", "create_contact", ADA, "--wait", "--wait-seconds=0", code=1)
    assert "check that a worker is running" in cli.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("crn", "create_contact", ADA), "integration_not_found"),
        (("crm", "create_contct", ADA), "operation_not_found"),
        (("crm", "create_contact"), "bad_payload"),
        (("crm", "create_contact", "--payload=[1]"), "bad_payload"),
        (("crm", "create_contact", "--payload={"), "bad_payload"),
        (("crm", "create_contact", ADA, "--priority=11"), "bad_payload"),
        (("crm", "create_contact", ADA, "--company-id="), "bad_setting"),
    ],
)
def test_what_cannot_be_sent_is_a_wrong_command(cli: Cli, arguments: tuple[str, ...], code: str) -> None:
    assert cli.json("sync", "send", *arguments, code=2)["code"] == code


def test_stats_and_monitor_take_the_only_integration(cli: Cli) -> None:
    cli("migrate")
    assert cli.json("sync", "stats") == cli.json("sync", "stats", "crm")
    cli("sync", "stats", app="lonely", code=2)
    assert "name an integration; known: none" in cli.err
    cli("sync", "monitor", "crm", app="lonely", code=2)
    assert cli("sync", "list", app="lonely") == "no integrations: declare one with app.integration(...)\n"


def test_stats_and_monitor_tell_how_it_does(cli: Cli) -> None:
    cli("sync", "send", "crm", "create_contact", ADA)
    cli.drain(Reply(201, {"id": "7"}))
    failing = cli.json("sync", "send", "crm", "create_contact", ADA)["id"]
    cli.drain(Reply(500, {"message": "try later"}))
    cli("sync", "send", "crm", "create_contact", '--payload={"email": "grace@example.org"}')
    assert cli("sync", "stats").splitlines() == [
        "pending     1",
        "processing  0",
        "failed      1 (to be retried)",
        "dead        0",
        "completed   1 in 24 hours",
    ]
    lines = cli("sync", "monitor").splitlines()
    assert lines[0].split() == ["crm", "enabled"]
    assert any(line.startswith("calls in 1 s   ") and line.endswith(" of 1,000") for line in lines)
    assert any(line.startswith("search in 1 s  0 of 500") for line in lines)
    row = next(line for line in lines if failing in line)
    assert row.split()[1:4] == ["create_contact", "queued", "1"]
    assert re.search(r"  in (1[01]\d s|120 s|2 min)  ", row)
    assert "500" in row


def test_what_was_refused_is_shown_with_what_to_do_and_run_again(cli: Cli) -> None:
    job_id = cli.json("sync", "send", "crm", "create_contact", ADA)["id"]
    cli.drain(refuses(None))
    assert job_id in cli("dead", "list")
    put_right, run_all = cli.err.splitlines()
    assert put_right.startswith("note: The service refused the credentials or their scopes")
    assert put_right.endswith(f"The scopes of crm are set at {SCOPES_URL}")
    assert run_all.endswith(": rowlock dead retry --type 'crm.*'")
    assert "guidance" not in cli("jobs", "show", job_id)
    assert cli.err.splitlines()[1] == f"note: When the cause is fixed, retry it: rowlock dead retry {job_id}"
    assert len(cli.json("jobs", "show", job_id)["guidance"]) == 3
    assert cli("dead", "retry", "--type=mail.*") == "0 jobs are queued again\n"
    assert cli("dead", "retry", "--type=crm.*", "--dry-run") == "1 failed jobs match\n"
    assert cli("dead", "retry", "--type=crm.*") == "1 jobs are queued again\n"
    cli.drain(Reply(201, {"id": "7"}))
    assert cli.json("jobs", "show", job_id)["status"] == "succeeded"
    assert (cli("dead", "list"), cli.err) == ("no failed jobs\n", "")


def findings(cli: Cli) -> list[tuple[str, str, str]]:
    told = cli.json("doctor")["findings"]
    return [(each["severity"], each["message"], each["advice"]) for each in told if each["check"] == "sync"]


def test_the_doctor_says_whether_it_is_enabled(cli: Cli) -> None:
    cli("migrate")
    assert findings(cli) == [("ok", "crm is enabled, and skips create_deal", "")]


def test_the_doctor_says_which_setting_enables_it(cli: Cli, disabled: None) -> None:
    cli("migrate")
    assert findings(cli) == [("ok", "crm is disabled: nothing is sent", "set CRM_TOKEN")]


def test_the_doctor_warns_of_work_that_waits_for_what_is_disabled(cli: Cli, hub: Integration) -> None:
    cli("sync", "send", "crm", "create_contact", ADA)
    hub.disabled = "set CRM_TOKEN"
    warnings = [each for each in cli.json("doctor")["findings"] if each["severity"] == "warning"]
    told = "1 jobs are ready on queue crm, and crm is disabled: set CRM_TOKEN"
    assert [(each["check"], each["message"]) for each in warnings] == [("workers", told)]
    cli("health")
    assert cli.err == f"note: {told}\n"


def test_the_doctor_warns_of_a_spent_limit_and_of_what_died(cli: Cli) -> None:
    cli("sync", "send", "crm", "create_contact", ADA)
    cli.drain(refuses(None))

    async def rest() -> None:
        async with application:
            await application.store.rest_calls("crm:default/1 s", 3_600)

    asyncio.run(rest())
    rests, died = findings(cli)[1:]
    assert rests[0] == "warning"
    assert re.fullmatch(r"crm asked to wait until 20[-0-9T:.]+Z \(limit 1 s\)", rests[1])
    assert died == ("warning", "1 jobs for crm are dead letters", "see `rowlock dead list --type 'crm.*'`")


def test_a_worker_serves_a_disabled_integration_only_when_it_is_told_to(cli: Cli, hub: Integration) -> None:
    job_id = cli.json("sync", "send", "crm", "create_contact", ADA)["id"]
    hub.disabled = "set CRM_TOKEN"

    async def queues(*named: str) -> tuple[str, ...]:
        async with application:
            return await checked_queues(application, "application", named)

    assert asyncio.run(queues()) == (application.settings.queue,)
    assert asyncio.run(queues("crm")) == ("crm",)
    assert cli.json("jobs", "show", job_id)["status"] == "queued"

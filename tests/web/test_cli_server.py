"""The commands against a server: the same output, messages and exit codes as locally, and the token is never shown."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from rowlock.cli import main
from rowlock.client import wire
from rowlock.observe import logs
from rowlock.storage.access import Role
from web.conftest import MakeSite
from web.site import Site

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


class Done(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Awaitable[Done]]


def command(*arguments: str, **environment: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    logs.reset()  # the stream that commands log to is gone
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def run(site: Site) -> Run:
    """Runs commands with the server in the environment, beside the server."""

    async def run(*arguments: str, token: str = "admin", **environment: str) -> Done:
        place = {"ROWLOCK_SERVER": site.url, "ROWLOCK_TOKEN": site.tokens[token]}
        done = await asyncio.to_thread(command, *arguments, **place | environment)
        assert site.tokens[token] not in done.out + done.err
        return done

    return run


async def here(site: Site, *arguments: str) -> Done:
    """The same command on the database itself."""
    place = ("--database", site.app.settings.database_url)
    return await asyncio.to_thread(command, *arguments, *place, ROWLOCK_APP="backoffice:app")


@pytest.mark.every_store
async def test_every_question_is_answered_in_the_same_words(run: Run, site: Site) -> None:
    (dead,) = await site.dead()
    await site.enqueue()
    failure = (await run("failures", "list", "--json")).json["failures"][0]["id"]
    questions = [
        ("jobs", "list"),
        ("jobs", "list", "--status=failed", "--limit=1"),
        ("jobs", "show", dead),
        ("dead", "list"),
        ("dead", "retry", "--all", "--dry-run"),
        ("failures", "list"),
        ("failures", "show", failure),
        ("schedules", "runs"),
    ]
    for question in questions:
        for form in ([], ["--json"]):
            assert await run(*question, *form) == await here(site, *question, *form)


async def test_what_the_server_alone_knows_is_told(run: Run, site: Site) -> None:
    await site.enqueue()
    (queue,) = (await run("queues", "list", "--json")).json["queues"]
    assert (queue["name"], queue["ready"]) == ("default", 1)
    assert (await run("schedules", "list", "--json")).json["schedules"][0]["name"] == "nightly"
    assert (await run("health", "--json")).json["jobs"]["queued"] == 1
    assert "no worker serves it" in (await run("health")).err
    assert "rowlock_jobs{" in (await run("metrics")).out
    assert (await run("metrics", "--json")).json["measures"]


async def test_every_change_is_made_there(run: Run, site: Site) -> None:
    first, second = await site.dead(2)
    assert (await run("jobs", "retry", first)).out == f"{first}  doomed is queued again on default\n"
    assert (await run("jobs", "cancel", first)).out == f"{first}  doomed is cancelled\n"
    failure = (await run("failures", "list", "--job", second, "--json")).json["failures"][0]["id"]
    assert (await run("failures", "retry", failure)).out == f"job {second} is queued again\n"
    assert (await run("queues", "pause", "default")).out == "default is paused\n"
    assert "queue 'typo' has no handlers" in (await run("queues", "pause", "typo")).err
    assert (await run("schedules", "pause", "nightly")).code == 0
    assert (await run("schedules", "run", "nightly", "--json")).json["name"] == "nightly"
    assert (await run("prune")).out.startswith("deleted jobs: 0 succeeded")


async def test_dead_jobs_are_gone_through_page_by_page(run: Run, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.cli.dead._BATCH", 2)
    ids = await site.dead(5)
    done = (await run("dead", "retry", *ids[:3], "--json")).json
    assert done == {"dryRun": False, "matched": 3, "retried": 3, "conflicts": [], "nextCursor": None}
    done = (await run("dead", "discard", "--all", "--yes", "--json")).json
    assert done == {"dryRun": False, "matched": 2, "discarded": 2, "nextCursor": None}
    assert (await run("dead", "discard", ids[0])).code == 1


async def test_a_job_is_enqueued_and_waited_for(run: Run, site: Site) -> None:
    waiting = asyncio.create_task(run("enqueue", "ping", "--wait", "--json", token="operator"))
    stop = asyncio.Event()
    working = asyncio.create_task(site.app.work(stop=stop))
    done = await waiting
    stop.set()
    await working
    assert done.code == 0
    assert (done.json["status"], done.json["created"]) == ("succeeded", True)
    assert (await run("enqueue", "doomed", "--wait", "--wait-seconds=0")).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("enqueue", "nonsense"), 2, "unknown_job_type"),
        (("enqueue", "mail"), 2, "bad_payload"),
        (("enqueue", "ping", "--queue", ""), 2, "bad_setting"),
        (("enqueue", "ping", "--max-attempts", "0"), 2, "bad_payload"),
        (("enqueue", "ping", "--at", "soon"), 2, "usage"),
        (("jobs", "list", "--type", "x" * 300), 2, "validation_failed"),
        (("jobs", "list", "--cursor", "x"), 2, "bad_cursor"),
        (("jobs", "show", NOBODY), 1, "job_not_found"),
        (("jobs", "show", "stats"), 1, "job_not_found"),
        (("failures", "show", "x"), 1, "job_not_found"),
        (("schedules", "pause", "yearly"), 2, "schedule_not_found"),
        (("dead", "retry"), 2, "usage"),
    ],
)
async def test_mistakes_end_as_they_do_here(run: Run, arguments: tuple[str, ...], code: int, told: str) -> None:
    done = await run(*arguments, "--json")
    assert (done.code, done.json["code"]) == (code, told), done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


async def test_a_duplicate_is_named(run: Run, site: Site) -> None:
    first = await site.enqueue("once")
    done = await run("enqueue", "once", "--json")
    assert (done.code, done.json["code"], done.json["existingJobId"]) == (1, "duplicate_job", first["id"])


async def test_a_token_may_do_what_its_role_allows(run: Run) -> None:
    done = await run("enqueue", "ping", "--json", token="viewer")
    assert (done.code, done.json["code"]) == (1, "forbidden")
    assert done.err == "error: this requires the role operator; the token has viewer\n"
    assert (await run("jobs", "list", token="viewer")).code == 0


async def test_a_token_comes_from_a_file(site: Site, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(site.tokens["viewer"] + "\n")
    assert (await run("jobs", "list", "--server", site.url, "--token-file", str(file), ROWLOCK_TOKEN="")).code == 0
    file.write_text("\n")
    empty = await run("jobs", "list", "--token-file", str(file))
    assert (empty.code, empty.err) == (2, f"error: --token-file {file}: the file contains no token\n")
    missing = await run("jobs", "list", "--token-file", f"{file}.not")
    assert (missing.code, missing.err) == (2, f"error: --token-file {file}.not: No such file or directory\n")


async def test_a_server_without_a_token_is_a_mistake(run: Run) -> None:
    done = await run("jobs", "list", "--json", ROWLOCK_TOKEN="")
    assert (done.code, done.json["code"]) == (2, "usage")
    assert "set ROWLOCK_TOKEN or --token-file" in done.err


async def test_a_token_file_without_a_server_is_a_mistake(run: Run) -> None:
    done = await run("jobs", "list", "--token-file", "x", ROWLOCK_SERVER="")
    assert (done.code, done.err) == (2, "error: --token-file requires --server\n")


async def test_a_server_and_an_application_here_contradict_each_other(run: Run, site: Site) -> None:
    for option in (("--database", "sqlite:///x.db"), ("--app", "backoffice:app")):
        done = await run("jobs", "list", "--server", site.url, *option, "--json")
        assert (done.code, done.json["code"]) == (2, "usage")
        assert option[0] in done.err


async def test_the_command_line_goes_before_the_environment(run: Run, site: Site, tmp_path: Path) -> None:
    done = await run("jobs", "list", "--json", "--database", f"sqlite:///{tmp_path}/empty.db")
    assert done.json["code"] == "schema_missing"
    done = await run("jobs", "list", "--server", site.url, DATABASE_URL="mysql://x", ROWLOCK_APP="nowhere:app")
    assert done.code == 0


async def test_a_server_that_is_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_AGAIN_SECONDS", 0.001)
    with socket.socket() as nobody:  # holds the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = await run("health", "--server", url, "--json")
    assert (done.code, done.json["code"]) == (1, "server_unavailable")
    assert "check the address, and that `rowlock serve` runs there" in done.err


async def test_a_token_is_not_sent_in_the_clear(run: Run) -> None:
    done = await run("health", "--server", "http://jobs.example.org", "--json")
    assert (done.code, done.json["code"]) == (2, "bad_setting")
    assert "must not travel in the clear" in done.err


async def test_a_company_sees_its_own(make_site: MakeSite) -> None:
    site = await make_site()
    await site.add_token("acme", Role.OPERATOR, "acme")
    await site.enqueue(companyId="other")
    mine = await site.enqueue(companyId="acme")
    place = {"ROWLOCK_SERVER": site.url, "ROWLOCK_TOKEN": site.tokens["acme"]}
    done = await asyncio.to_thread(command, "jobs", "list", "--json", **place)
    assert [job["id"] for job in done.json["jobs"]] == [mine["id"]]
    done = await asyncio.to_thread(command, "health", "--json", **place)
    assert (done.code, done.json["code"]) == (1, "company_scope")


def test_without_what_a_client_needs_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError(\"No module named 'httpx'\", name='httpx')\n")
    place = {"PYTHONPATH": str(tmp_path), "ROWLOCK_SERVER": "https://jobs.example.org", "ROWLOCK_TOKEN": "rlk_x"}
    asked = [sys.executable, "-m", "rowlock", "health"]
    done = subprocess.run(asked, cwd=tmp_path, env=place, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: asking a server needs httpx: pip install 'rowlock[client]'\n"

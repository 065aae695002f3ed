"""`rowlock serve` and `rowlock up`, started as users start them: the API runs, and can die without the workers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from faults.until import until
from mongo_server import MongoServer
from one_store import on_one_store
from postgres_server import PostgresServer
from rowlock.ids import uuid7
from sync.conftest import standin, standin_process
from sync.standin import StandIn
from sync.standin.endpoints import SCOPES
from unit.test_webhook import Receiver, serve

__all__ = ["standin", "standin_process"]

Start = Callable[..., "Running"]
SECONDS = 60.0


class Running:
    """A command that goes on, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def told(self) -> dict[str, Any]:
        return dict(json.loads(self.line()))

    def says(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in list(self.log))

    def serving(self) -> psutil.Process:
        """The process of the API."""
        return until(lambda: self._serving(), SECONDS, lambda: "".join(self.log))

    def _serving(self) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if "serve" in child.cmdline():
                    return child
        return None

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        self._reading.join(SECONDS)
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands in a folder of the test's own."""
    started = []

    def popen(*arguments: str, **environment: str) -> Running:
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
        started.append(Running(process))
        return started[-1]

    yield popen
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        running._reading.join(SECONDS)
        for stream in (running.process.stdout, running.process.stderr):
            assert stream is not None
            stream.close()


def ask(url: str, token: str, path: str = "/api/v1/health", **request: Any) -> httpx.Response:
    method = "POST" if "json" in request else "GET"
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(method, url + path, headers=headers, timeout=SECONDS, trust_env=False, verify=False, **request)


def finish(start: Start, url: str, token: str) -> dict[str, Any]:
    """Have a job done, over HTTP, as a user would."""
    ping = start("enqueue", "healthPing", "--wait", "--json", ROWLOCK_SERVER=url, ROWLOCK_TOKEN=token)
    return ping.told()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    yield from serve()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_one_store(metafunc, "database", ("sqlite", "postgres", "mongo"))


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    name = f"up_{uuid7().replace('-', '')}"
    if request.param == "mongo":
        mongo: MongoServer = request.getfixturevalue("mongo")
        return mongo.url_of(name)
    server: PostgresServer = request.getfixturevalue("postgres")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.url_of(name)


# -- up --------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_up_serves_what_it_prints(start: Start, database: str) -> None:
    up = start("up", "--json", "--port", "0", DATABASE_URL=database)
    told = up.told()
    assert told["url"].startswith("http://127.0.0.1:")
    assert told["token"].startswith("rlk_")
    assert told["sync"] == [{"name": "hubspot", "enabled": False, "why": "set ROWLOCK_HUBSPOT_TOKEN"}]
    done = subprocess.run(shlex.split(told["curl"]), capture_output=True, text=True, timeout=SECONDS)
    assert json.loads(done.stdout)["schema"]["current"] > 0, done.stderr
    job = finish(start, told["url"], told["token"])
    assert (job["status"], job["result"]["pong"]) == ("succeeded", True)
    listed = start("token", "list", "--json", DATABASE_URL=database).told()["tokens"]
    assert [(token["name"], token["role"]) for token in listed] == [("rowlock up", "admin")]
    api = up.serving()
    assert up.stop() == 0
    assert not api.is_running()
    assert not up.says(told["token"])


def test_up_tells_people_where_to_look(start: Start) -> None:
    up = start("up", ROWLOCK_HTTP_PORT="0")
    fields = dict(line.split(maxsplit=1) for line in iter(up.line, "stop         Ctrl-C\n"))
    assert list(fields) == [
        *("application", "imports", "sync", "database", "workers", "open", "api", "token", "try", "first", "look")
    ]
    assert fields["sync"] == "hubspot: disabled, set ROWLOCK_HUBSPOT_TOKEN\n"
    assert "hubspot" not in fields["application"]
    assert fields["try"] == (
        f"curl -H 'Authorization: Bearer {fields['token'].strip()}' {fields['api'].strip()}/api/v1/health\n"
    )
    assert ask(fields["api"].strip(), fields["token"].strip()).status_code == 200
    with httpx.Client(follow_redirects=True, timeout=SECONDS, trust_env=False, verify=False) as browser:
        opened = browser.get(fields["open"].strip())
    assert "<h1>Overview</h1>" in opened.text
    assert "token" not in str(opened.url)
    assert up.stop(signal.SIGINT) == 0


def test_up_sends_to_hubspot_where_it_is_told_and_tells_staff_when_it_is_refused(
    start: Start, database: str, standin: StandIn, hook: Receiver
) -> None:
    settings = {
        "ROWLOCK_HUBSPOT_TOKEN": standin.token,
        "ROWLOCK_HUBSPOT_URL": standin.url,
        "ROWLOCK_WEBHOOK_URLS": hook.url,
        "ROWLOCK_WEBHOOK_SECRET": "whsec_" + base64.b64encode(bytes(range(32))).decode(),
        "ROWLOCK_WEBHOOK_ALLOW_PRIVATE": "1",
        "ROWLOCK_NOTIFY_SECONDS": "1",
    }
    up = start("up", "--json", "--port", "0", DATABASE_URL=database, **settings)
    told = up.told()
    assert told["sync"] == [{"name": "hubspot", "enabled": True, "why": None}]
    place = {"ROWLOCK_SERVER": told["url"], "ROWLOCK_TOKEN": told["token"]}

    def send(email: str) -> dict[str, Any]:
        given = ("--payload", json.dumps({"email": email}), "--wait", "--json")
        return start("sync", "send", "hubspot", "create_contact", *given, **place).told()

    assert send("Ada@Example.org")["status"] == "succeeded"
    standin.access(scopes=[])
    dead = send("grace@example.org")
    assert (dead["status"], dead["attempts"]) == ("failed", 1)

    def message() -> tuple[bytes, dict[str, Any]] | None:
        """The message about the operation; what is done at the start may have been refused, too, and told before."""
        for *_, body in hook.requests:
            groups = {group["operation"]: group for group in json.loads(body)["data"]["groups"]}
            if "create_contact" in groups:
                return body, groups["create_contact"]
        return None

    body, group = until(message, SECONDS, lambda: "".join(up.log))
    assert group["jobIds"] == [dead["id"]]
    assert group["scopesUrl"] == "https://app.hubspot.com/private-apps"
    assert (group["scopesUrl"] in group["guidance"][0], "MISSING_SCOPES" in group["lastError"]) == (True, True)
    standin.access(scopes=sorted(SCOPES))
    again = start("dead", "retry", "--type", "hubspot.*", "--json", **place).told()
    assert again["retried"] >= 1
    until(lambda: len(standin.things("contacts")) == 2, SECONDS, lambda: "".join(up.log))
    assert sorted(each["email"] for each in standin.things("contacts")) == ["ada@example.org", "grace@example.org"]
    assert standin.judgement()["complaints"] == []
    assert up.stop() == 0
    assert not up.says(standin.token)
    assert standin.token.encode() not in body


def test_the_death_of_the_api_is_survived_by_workers_and_callers(start: Start) -> None:
    up = start("up", "--json", "--port", "0")
    told = up.told()
    assert ask(told["url"], told["token"]).status_code == 200
    workers = [p.pid for p in psutil.Process(up.process.pid).children() if "serve" not in p.cmdline()]
    for _ in range(2):
        api = up.serving()
        api.kill()
        assert ask(told["url"], told["token"]).status_code == 200  # it waits for the next process, and is answered
        assert up.serving().pid != api.pid
    assert up.says("http.died")
    assert set(workers) <= {p.pid for p in psutil.Process(up.process.pid).children()}
    assert finish(start, told["url"], told["token"])["status"] == "succeeded"
    assert up.stop() == 0


def test_the_api_ends_with_its_parent(start: Start) -> None:
    up = start("up", "--json", "--port", "0")
    told = up.told()
    assert ask(told["url"], told["token"]).status_code == 200
    api = up.serving()
    up.process.kill()
    api.wait(SECONDS)


def test_a_port_that_is_taken_is_refused_before_anything_starts(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = start("up", "--json", "--port", str(port))
        told = up.told()
        assert told["code"] == "bad_setting"
        assert told["message"].startswith(f"cannot listen on 127.0.0.1 port {port}: ")
        assert up.process.wait(SECONDS) == 2
    assert list(tmp_path.glob("*.db")) == []


def test_up_without_an_api(start: Start) -> None:
    up = start("up", "--json", "--no-api")
    told = up.told()
    assert not {"url", "open", "token", "curl"} & set(told)
    until(lambda: up.says("worker.started"), SECONDS)
    assert up._serving() is None
    assert up.stop() == 0


def without_web(folder: Path) -> dict[str, str]:
    """An environment in which what serves HTTP is not installed."""
    (folder / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    return {"PYTHONPATH": str(folder)}


def test_up_goes_on_without_what_is_not_installed(start: Start, tmp_path: Path) -> None:
    up = start("up", "--json", **without_web(tmp_path))
    assert "url" not in up.told()
    until(lambda: up.says("worker.started"), SECONDS)
    assert up.says("note: the HTTP API needs fastapi: pip install 'rowlock[web]'; continuing without it")
    assert up.stop() == 0


# -- serve -----------------------------------------------------------------------------------------


def test_serve_answers_until_it_is_told_to_stop(start: Start, database: str) -> None:
    token = start("token", "create", "--name", "test", DATABASE_URL=database).line().strip()
    serve = start("serve", "--port", "0", "--json", DATABASE_URL=database)
    told = serve.told()
    assert told["pid"] == serve.process.pid
    assert ask(told["url"], token).status_code == 200
    assert ask(told["url"], "rlk_other").status_code == 401
    assert serve.stop() == 0
    assert serve.says("http.stopped")


def test_serve_sets_up_an_empty_database_and_tells_people_where_it_is(start: Start, tmp_path: Path) -> None:
    serve = start("serve", "--host", "127.0.0.1", ROWLOCK_HTTP_PORT="0")
    words = serve.line().split()
    assert words[0] == "serving"
    assert httpx.get(f"{words[1].rstrip(',')}/readyz", trust_env=False).status_code == 200
    assert (tmp_path / "rowlock.db").exists()
    assert serve.stop(signal.SIGINT) == 0


def test_serve_without_what_it_needs_says_what_to_install(start: Start, tmp_path: Path) -> None:
    serve = start("serve", "--json", **without_web(tmp_path))
    told = serve.told()
    assert told == {"code": "bad_setting", "message": "the HTTP API needs fastapi: pip install 'rowlock[web]'"}
    assert serve.process.wait(SECONDS) == 2


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host"])
def test_an_address_that_is_not_ours(start: Start, host: str) -> None:
    serve = start("serve", "--json", "--host", host)
    assert serve.told()["message"].startswith(f"cannot listen on {host} port 8000: ")
    assert serve.process.wait(SECONDS) == 2

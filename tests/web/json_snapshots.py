"""Every JSON answer of the HTTP API and the command line, pinned in `snapshots/`.

A change of an answer shows as a diff of these files. After an intended change, write them again:

    .venv/bin/python tests/web/json_snapshots.py

The scenarios run on SQLite with a fixed clock. Ids, times, ports and measured durations are replaced by placeholders.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
from pydantic import BaseModel

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from rowlock import FakeClock, Job, Permanent, Rowlock, Unique
from rowlock.cli import main
from rowlock.client import Client
from rowlock.http.asgi import Api
from rowlock.http.openapi import describe
from rowlock.observe import logs
from rowlock.settings import Settings, load
from rowlock.storage.access import Role
from web.importing import CSV, CSV_UPLOAD, XLSX_UPLOAD, half_done, workbook
from web.site import Site
from web.syncing import declare_crm

FOLDER = Path(__file__).parent / "snapshots"
COMMAND = ".venv/bin/python tests/web/json_snapshots.py"
SECONDS = 60.0
NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"

Snapshots = dict[str, Any]


class Customer(BaseModel):
    email: str
    name: str | None = None


class Gate:
    """Holds a handler until it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()


def application(gate: Gate | None = None) -> Rowlock:
    """An application with a job type, schedule, importer and integration of each kind that the answers tell apart."""
    app = Rowlock(settings=load(database_url="sqlite:///unused.db"), clock=FakeClock())

    @app.job("ping")
    async def ping(job: Job) -> dict[str, Any]:
        return {"pong": True, "token": "hunter2"}

    @app.job("once", unique=Unique.forever())
    async def once(job: Job, number: int = 0) -> None: ...

    @app.job("doomed")
    async def doomed(job: Job, password: str = "") -> None:
        raise Permanent("it never works\nand that is why")

    @app.job("held", queue="side")
    async def held(job: Job) -> None:
        job.progress(40, "half way")
        if gate is not None:
            gate.entered.set()
            await gate.opened.wait()

    app.schedule("nightly", "ping", cron="0 3 * * *")
    app.schedule("often", "ping", every_seconds=60)
    app.importer("customers", row=Customer, key=["email"], into="web_customers")
    declare_crm(app)
    declare_crm(app, "books", disabled="set ROWLOCK_BOOKS_TOKEN")
    return app


here = application()  # what `--app web.json_snapshots:here` names


# -- placeholders ----------------------------------------------------------------------------------

_MEASURED = {"seconds", "meanSeconds", "meanProcessingMs", "pid", "bytes", "current", "wanted"}
_HIDDEN = {"stackTrace": "<stack>", "token": "<token>", "sha256": "<sha256>"}


class Plain:
    """Replaces what differs from run to run; the same id gets the same placeholder."""

    def __init__(self, *places: tuple[str, str]) -> None:
        self._ids: dict[str, str] = {}
        self._replaced: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
            *((re.compile(re.escape(text)), lambda _, name=name: name) for text, name in places),
            (re.compile(r"rlk_[\w-]{20,}"), lambda _: "<token>"),
            (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), self._id),
            (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), lambda _: "<time>"),
            (re.compile(r"127\.0\.0\.1:\d{2,}"), lambda _: "127.0.0.1:<port>"),
            (re.compile(re.escape(socket.gethostname()) + r"(?:[:.]\d+)*"), lambda _: "<worker>"),
        ]

    def _id(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>")

    def __call__(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if value.get("status") == "FAILED":  # how far it was known to be depends on when it looked at the clock
                value = value | {"progress": "<number>"}
            return {self(name): self(each, name) for name, each in value.items()}
        if isinstance(value, list) and key == "applied":
            return ["<migration>"] if value else []
        if isinstance(value, list):
            return [self(each) for each in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and key in _MEASURED:
            return "<number>"
        if not isinstance(value, str):
            return value
        if key in _HIDDEN and value != "[REDACTED]":
            return _HIDDEN[key]
        for pattern, replacement in self._replaced:
            value = pattern.sub(replacement, value)
        return value


# -- HTTP ------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(folder: Path, gate: Gate) -> AsyncIterator[Site]:
    """A site on a database of its own, with an import folder and a table for its importer."""
    app = application(gate)
    app.settings = load(
        database_url=f"sqlite:///{folder}/http.db",
        import_store=str(folder / "files"),
        import_folder=str(folder / "folder"),
        import_manifest=str(folder / "manifest.json"),
        http_event_ms=50,
        http_token_seconds=0.0,
        grace_seconds=5.0,
    )
    (folder / "folder").mkdir()
    (folder / "folder" / "customers.csv").write_bytes(CSV)
    _table(folder / "http.db")  # first: two SQLite libraries in one process must not have the same file open
    async with app:
        await app.migrate()
        site = Site(app)
        await site.start()
        await site.add_token("acme", Role.OPERATOR, "acme")
        try:
            yield site
        finally:
            gate.opened.set()
            await site.stop()


def _table(database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE web_customers (email TEXT PRIMARY KEY, name TEXT)")
        connection.commit()


class Recorder:
    """Asks a site, and keeps the answers by route and case."""

    def __init__(self, site: Site, plain: Plain) -> None:
        self.taken: Snapshots = {}
        self._site = site
        self._plain = plain

    async def __call__(
        self, method: str, route: str, case: str = "", *, token: str = "admin", query: Any = None, **request: Any
    ) -> Any:
        """Ask; `{…}` in the route are filled from the keyword arguments of their names."""
        names = re.findall(r"{(\w+)}", route)
        path = route.format(**{name: request.pop(name) for name in names})
        answer = await self._site.ask(method, path, token, params=query, **request)
        name = f"{method} {route}" + (f" ({case})" if case else "")
        assert name not in self.taken, name
        self.taken[name] = self._plain({"status": answer.status_code, "body": _body(answer)})
        return _body(answer)


def _body(answer: httpx.Response) -> Any:
    kind = answer.headers.get("content-type", "")
    return answer.json() if "json" in kind else kind


async def http(folder: Path) -> tuple[Snapshots, Snapshots]:
    """The answers of every route, and one event of each kind."""
    gate = Gate()
    async with served(folder, gate) as site:
        plain = Plain((str(folder), "<folder>"))
        ask = Recorder(site, plain)
        await _probes(ask)
        await _jobs(ask, site)
        await _fleet(ask, site, gate)
        await _imports(ask, site)
        await _sync(ask, site)
        await _problems(ask)
        return ask.taken, plain(await _events(site))


async def _probes(ask: Recorder) -> None:
    await ask("GET", "/healthz")
    await ask("GET", "/readyz")
    await ask("GET", "/metrics")


async def _jobs(ask: Recorder, site: Site) -> None:
    queue = "/api/v1/queue"
    await ask("GET", queue, "empty")
    unique = {"policy": "window", "seconds": 60, "key": "k", "onConflict": "return_existing"}
    again = {"type": "once", "queue": "other", "companyId": "acme", "unique": unique}
    job = await ask(
        "POST",
        f"{queue}/enqueue",
        json=again
        | {"payload": {"number": 1}, "priority": 7, "delaySeconds": 60, "maxAttempts": 2, "limitKey": "api:1"},
    )
    await ask("POST", f"{queue}/enqueue", "existing", json=again)
    await ask("POST", f"{queue}/enqueue", "ping", json={"type": "ping", "companyId": "acme"})
    dead = [(await ask("POST", f"{queue}/enqueue", f"doomed {n}", json=DOOMED))["id"] for n in range(3)]
    await site.app.work("default", drain=True)
    await ask("GET", queue)
    page = await ask("GET", queue, "a page", query={"status": "failed", "limit": 1})
    await ask("GET", queue, "the next page", query={"status": "failed", "limit": 1, "cursor": page["nextCursor"]})
    await ask("GET", f"{queue}/stats")
    await ask("GET", f"{queue}/stats", "of a company", token="acme")
    await ask("GET", f"{queue}/dead-letter", query={"type": "doom*", "queue": "default"})
    await ask("GET", f"{queue}/dead-letter", "some", query={"type": "doomed", "limit": 1})
    await ask("GET", f"{queue}/dead-letter/groups")
    await ask("GET", f"{queue}/{{job_id}}", "queued", job_id=job["id"])
    await ask("GET", f"{queue}/{{job_id}}", "failed", job_id=dead[0])
    await ask("GET", f"{queue}/{{job_id}}", "raw", job_id=dead[0], query={"raw": "true"})
    await ask("GET", f"{queue}/{{job_id}}/timeline", job_id=dead[0])
    await ask("GET", f"{queue}/{{job_id}}/timeline", "viewer", job_id=dead[0], token="viewer")
    await ask("GET", f"{queue}/{{job_id}}/timeline", "due", job_id=job["id"])
    failures = await ask("GET", "/api/admin/queue/failures", query={"jobName": "doomed", "limit": 2})
    failure = failures["data"]["failures"][0]["id"]
    await ask("GET", "/api/admin/queue/failures/{failure_id}", failure_id=failure)
    await ask("POST", "/api/admin/queue/retry", json={"failureId": failure})
    await ask("POST", f"{queue}/{{job_id}}/run-now", job_id=job["id"])
    await ask("POST", f"{queue}/{{job_id}}/cancel", job_id=job["id"])
    await ask("POST", f"{queue}/{{job_id}}/retry", job_id=dead[1])
    await ask("POST", f"{queue}/dead-letter/retry", "dry run", json={"all": True, "dryRun": True})
    await ask("POST", f"{queue}/dead-letter/discard", "dry run", json={"type": "doomed", "dryRun": True})
    await ask("POST", f"{queue}/dead-letter/retry", json={"ids": [dead[0]]})
    await site.app.work("default", drain=True)
    await ask("POST", f"{queue}/dead-letter/retry", "a page", json={"all": True, "limit": 1})
    await ask("POST", f"{queue}/dead-letter/discard", json={"all": True})
    await ask("POST", "/api/admin/queue/prune")


DOOMED = {"type": "doomed", "payload": {"password": "hunter2"}}


async def _fleet(ask: Recorder, site: Site, gate: Gate) -> None:
    await ask("GET", "/api/v1/workers", "none")
    await site.enqueue("held")
    await site.enqueue("ping", queue="unserved")
    working = asyncio.create_task(site.app.work("side", drain=True))
    async with asyncio.timeout(SECONDS):
        await gate.entered.wait()
        while not (await site.app.store.running(1))[0].progress:
            await asyncio.sleep(0.01)
    await ask("GET", "/api/v1/workers")
    await ask("GET", "/api/v1/health")
    await ask("GET", "/api/v1/queues")
    await ask("GET", "/api/admin/queue/health")
    await ask("GET", "/api/admin/queue/health", "of a queue", query={"queue": "side"})
    gate.opened.set()
    await working
    await ask("GET", "/api/v1/queues/history", query={"minutes": 2})
    await ask("POST", "/api/v1/queues/{name}/pause", name="side")
    await ask("POST", "/api/v1/queues/{name}/resume", name="side")
    await ask("POST", "/api/v1/queues/{name}/pause", "unknown", name="nowhere")
    await ask("GET", "/api/v1/schedules", "before")
    await ask("POST", "/api/v1/schedules/{name}/run", name="nightly")
    await ask("POST", "/api/v1/schedules/{name}/pause", name="nightly")
    await ask("GET", "/api/v1/schedules")
    await ask("POST", "/api/v1/schedules/{name}/resume", name="nightly")
    await ask("GET", "/api/v1/schedules/runs")
    await ask("GET", "/api/v1/schedules/runs", "of one", query={"name": "often"})


async def _imports(ask: Recorder, site: Site) -> None:
    imports = "/api/v1/import-jobs"
    upload = {"headers": {"content-type": "text/csv"}, "content": CSV}
    asked = {"filename": "customers.csv", "type": "customers"}
    first = (await ask("POST", CSV_UPLOAD, query=asked, **upload))["id"]
    await ask("POST", CSV_UPLOAD, "again", query=asked, **upload)
    await ask("GET", f"{imports}/{{import_id}}", "queued", import_id=first)
    await site.app.work("imports", drain=True)
    await ask("GET", f"{imports}/{{import_id}}", "done", import_id=first)
    dry = await ask("POST", CSV_UPLOAD, "dry run", query=asked | {"dryRun": "true", "companyId": "acme"}, **upload)
    await site.app.work("imports", drain=True)
    await ask("GET", f"{imports}/{{import_id}}", "dry run", import_id=dry["id"])
    sheet = {"files": {"file": ("customers.xlsx", workbook())}, "data": {"type": "customers", "sheetName": "One"}}
    broken = await ask("POST", XLSX_UPLOAD, **sheet)
    await site.app.work("imports", drain=True)
    await ask("GET", f"{imports}/{{import_id}}", "failed", import_id=broken["id"])
    named = await ask(
        "POST", "/api/v1/imports/xlsx", json={"filename": "customers.csv", "type": "customers", "force": True}
    )
    await half_done(site, named["id"])
    await ask("GET", f"{imports}/{{import_id}}", import_id=named["id"])
    await ask("GET", f"{imports}/{{import_id}}/errors", import_id=named["id"])
    await ask("GET", f"{imports}/{{import_id}}/errors", "a page", import_id=named["id"], query={"limit": 1})
    await ask("GET", f"{imports}/{{import_id}}/errors.csv", import_id=named["id"])
    await ask("POST", f"{imports}/{{import_id}}/cancel", import_id=named["id"])
    await ask("POST", f"{imports}/{{import_id}}/resume", import_id=named["id"])
    await ask("GET", imports)
    await ask("GET", imports, "a page", query={"limit": 1, "type": "customers", "status": "SUCCEEDED"})
    await ask("GET", "/api/v1/import-types")
    await ask("GET", "/api/v1/import-types/{name}/template.csv", name="customers")


async def _sync(ask: Recorder, site: Site) -> None:
    sync = "/api/v1/sync"
    await ask("GET", sync)
    await ask("GET", f"{sync}/{{integration}}/stats", integration="crm")
    place = {"integration": "crm", "operation": "create_contact"}
    body = {"payload": {"email": "ada@example.org", "token": "hunter2"}, "priority": 3, "delaySeconds": 1}
    await ask("POST", f"{sync}/{{integration}}/{{operation}}", **place, json=body)
    await ask("POST", f"{sync}/{{integration}}/{{operation}}", "existing", **place, json={"email": "ada@example.org"})
    await ask("POST", f"{sync}/{{integration}}/{{operation}}", "ready", **place, json={"email": "eve@example.org"})
    await site.app.work("crm", drain=True)
    await ask("GET", f"{sync}/{{integration}}/stats", "then", integration="crm")
    await ask("GET", f"{sync}/{{integration}}/monitor", integration="crm")
    await ask("GET", f"{sync}/{{integration}}/monitor", "disabled", integration="books")
    await ask("GET", f"{sync}/{{integration}}/monitor", "of a company", integration="crm", token="acme")


async def _problems(ask: Recorder) -> None:
    enqueue, imports = "/api/v1/queue/enqueue", "/api/v1/import-jobs/{import_id}"
    await ask("POST", enqueue, "unique", json={"type": "once", "payload": {"number": 7}})
    await ask("POST", enqueue, "duplicate_job", json={"type": "once", "payload": {"number": 7}})
    await ask("POST", enqueue, "validation_failed", json={"type": "", "nonsense": 1})
    await ask("POST", enqueue, "malformed_body", content=b"{", headers={"content-type": "application/json"})
    await ask("POST", enqueue, "unknown_job_type", json={"type": "nonsense"})
    await ask("POST", enqueue, "forbidden", json={"type": "ping"}, token="viewer")
    await ask("POST", enqueue, "company_scope", json={"type": "ping", "companyId": "other"}, token="acme")
    await ask("GET", "/api/v1/queue/{job_id}", "job_not_found", job_id=NOBODY)
    await ask("GET", imports, "import_not_found", import_id=NOBODY)
    await ask("GET", "/nowhere", "not_found")
    upload = {"headers": {"content-type": "text/csv"}, "query": {"filename": "x.csv", "type": "customers"}}
    await ask("POST", CSV_UPLOAD, "file_empty", content=b"", **upload)


async def _events(site: Site) -> Snapshots:
    """The events about one job, its queue and one import, none of which changes any more."""
    found: Snapshots = {}
    async with Client(site.url, site.tokens["admin"]) as client, aclosing(client.events()) as stream:
        assert (await anext(stream)).kind == "ready"
        job = await site.enqueue("ping", queue="events", delaySeconds=60)
        added = (await site.post(CSV_UPLOAD, **DRY_RUN)).json()
        wanted = {"job": job["id"], "queue": "events", "import": added["id"]}
        async with asyncio.timeout(SECONDS):
            async for event in stream:
                if event.data.get("id", event.data.get("name")) == wanted.get(event.kind):
                    found[event.kind] = event.data
                if len(found) == len(wanted):
                    break
    return {kind: found[kind] for kind in wanted}


DRY_RUN = {
    "headers": {"content-type": "text/csv"},
    "content": CSV,
    "params": {"filename": "customers.csv", "type": "customers", "dryRun": "true"},
}


def openapi() -> Snapshots:
    """The OpenAPI description; errors that routes share are written once, and with the routes their statuses."""
    schema: Snapshots = json.loads(json.dumps(describe(Api(application()).routes)))
    shared: dict[str, Any] = {}
    for operations in schema["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            errors = [status for status, said in responses.items() if shared.setdefault(status, said) == said]
            operation["responses"] = {
                **{status: said for status, said in responses.items() if status not in errors or status < "300"},
                "shared": " ".join(status for status in errors if status >= "300"),
            }
    return schema | {"sharedResponses": {status: said for status, said in shared.items() if status >= "300"}}


# -- the command line ------------------------------------------------------------------------------


class Commands:
    """Runs commands with `--json` on a database of its own, and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self.taken: Snapshots = {}
        self._plain = Plain((str(folder), "<folder>"))
        self.folder = folder
        self._place = ("--app=web.json_snapshots:here", f"--database=sqlite:///{folder}/cli.db")

    def __call__(self, *words: str, case: str = "", code: int = 0, name: str = "") -> Any:
        """Run a command in this process. Its name is the first words without the options and arguments."""
        out, err = io.StringIO(), io.StringIO()
        ended: object = None
        place = () if words[0] == "init" else self._place
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([*words, "--json", *place])
            except SystemExit as end:
                ended = end.code
        logs.reset()  # the stream that commands log to is gone
        assert ended == code, out.getvalue() + err.getvalue()
        return self.keep(name or " ".join(words[:2]), case, json.loads(out.getvalue()))

    def keep(self, command: str, case: str, answer: Any) -> Any:
        name = f"rowlock {command}" + (f" ({case})" if case else "")
        assert name not in self.taken, name
        self.taken[name] = self._plain(answer)
        return answer

    def started(self, *words: str) -> None:
        """Start a command that goes on, and keep the first line that it prints."""
        own = {key: text for key, text in os.environ.items() if not key.startswith(("ROWLOCK_", "DATABASE_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "rowlock", *words, "--json", *self._place],
            env=own | {"PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            self.keep(words[0], "", json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)

    def drain(self, *queues: str) -> None:
        async def work() -> None:
            async with here:
                await here.work(*queues, drain=True)

        asyncio.run(work())


def cli(folder: Path) -> Snapshots:
    """What every command prints with `--json`; `worker` prints nothing but its log."""
    settings = {"ROWLOCK_IMPORT_STORE": str(folder / "files"), "DATABASE_URL": ""}
    with mock.patch.dict(os.environ, settings):
        here.settings = here.settings.model_copy(update={"import_store": str(folder / "files")})
        run = Commands(folder)
        _table(folder / "cli.db")
        run("init", str(folder / "starter"), name="init")
        run("migrate", name="migrate")
        run("migrate", name="migrate", case="again")
        _cli_jobs(run)
        _cli_fleet(run)
        _cli_imports(run)
        _cli_sync(run)
        run.started("serve", "--port=0")
        run.started("up", "--port=0", "--processes=1")
        return run.taken


def _cli_jobs(run: Commands) -> None:
    job = run("enqueue", "ping", "--delay-seconds=60", "--unique-key=k", name="enqueue")
    existing = ("enqueue", "ping", "--unique-key=k", "--on-conflict=return_existing")
    run(*existing, name="enqueue", case="existing")
    run("enqueue", "ping", "--unique-key=k", name="enqueue", case="duplicate_job", code=1)
    dead = [run("enqueue", "doomed", name="enqueue", case=f"doomed {n}")["id"] for n in range(2)]
    run.drain("default")
    run("jobs", "list")
    run("jobs", "list", "--status=failed", "--limit=1", case="a page")
    run("jobs", "show", dead[0])
    run("jobs", "timeline", dead[0])
    run("jobs", "run-now", job["id"])
    run("jobs", "cancel", job["id"])
    run("jobs", "show", NOBODY, case="job_not_found", code=1)
    run("dead", "list")
    run("dead", "list", "--groups", case="groups")
    run("dead", "retry", "--all", "--dry-run", case="dry run")
    run("dead", "discard", "--all", "--dry-run", case="dry run")
    failure = run("failures", "list")["failures"][0]["id"]
    run("failures", "show", failure)
    run("failures", "retry", failure)
    run("jobs", "retry", job["id"])
    run("dead", "retry", "--all", "--yes")
    run.drain("default")
    run("dead", "discard", "--all", "--yes")
    run("prune", name="prune")
    run("jobs", "--nonsense", name="jobs", case="usage", code=2)


def _cli_fleet(run: Commands) -> None:
    run("queues", "list")
    run("queues", "pause", "side")
    run("queues", "resume", "side")
    run("schedules", "list")
    run("schedules", "run", "nightly")
    run("schedules", "pause", "nightly")
    run("schedules", "resume", "nightly")
    run("schedules", "runs")
    run("health", name="health")
    (finding, *_) = run("doctor", name="doctor")["findings"]
    run.taken["rowlock doctor"]["findings"] = [dict.fromkeys(finding, "<text>")]  # they differ between machines
    measures = run("metrics", name="metrics")["measures"]
    run.taken["rowlock metrics"] = {"measures": sorted({each["name"] for each in measures})}
    token = run("token", "create", "--name=deploy", "--role=operator", "--company=acme")
    run("token", "list")
    run("token", "revoke", token["id"])


def _cli_imports(run: Commands) -> None:
    file = run.folder / "customers.csv"
    file.write_bytes(CSV)
    found = run("import", str(file), "--type=customers", name="import")
    run("imports", "cancel", found["id"])
    run("imports", "resume", found["id"])
    run.drain("imports")
    run("imports", "show", found["id"])
    run("imports", "errors", found["id"])
    run("imports", "errors", found["id"], f"--csv={run.folder}/errors.csv", case="csv")
    run("imports", "list")
    run("import", str(file), "--type=customers", name="import", case="duplicate_import", code=1)


def _cli_sync(run: Commands) -> None:
    run("sync", "list")
    run("sync", "send", "crm", "create_contact", '--payload={"email": "ada@example.org"}', "--delay-seconds=60")
    run("sync", "stats", "crm")
    run("sync", "monitor", "crm")


# -- files -----------------------------------------------------------------------------------------


def text_of(snapshots: Snapshots) -> str:
    """The text of a file: the answers in the order of the scenario, their fields by name."""
    answers = [
        f"{json.dumps(name)}: {json.dumps(answer, indent=1, ensure_ascii=False, sort_keys=True)}"
        for name, answer in snapshots.items()
    ]
    return "{\n" + ",\n".join(answers) + "\n}\n"


async def every(folder: Path) -> dict[str, Snapshots]:
    """All snapshots, by the name of their file."""
    (folder / "http").mkdir()
    (folder / "cli").mkdir()
    answers, events = await http(folder / "http")
    commands = await asyncio.to_thread(cli, folder / "cli")  # which run event loops of their own
    return {"http": answers, "events": events, "cli": commands, "openapi": openapi()}


def _write() -> None:
    for field in Settings.model_fields.values():
        for name in field.validation_alias.choices:
            os.environ.pop(name, None)
    logs.configure("critical", "json")
    with tempfile.TemporaryDirectory() as folder:
        for name, snapshots in asyncio.run(every(Path(folder))).items():
            (FOLDER / f"{name}.json").write_text(text_of(snapshots))


if __name__ == "__main__":
    from web import json_snapshots  # the module that `--app` names, whose application the commands use

    json_snapshots._write()

"""`rowlock up`: supervisor, workers, HTTP API and dashboard as one process tree.

up ──┬── worker processes (see rowlock.jobs.worker.supervisor)
     └── rowlock serve, on a socket that is bound here: during a restart, clients wait and none is refused
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from socket import socket

    from rowlock.app import Rowlock
    from rowlock.cli.output import Output

_TOKEN_SECONDS = 24 * 3_600.0


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Migrate the database, then run the dashboard, the HTTP API, a supervisor and its workers until Ctrl-C. "
            "Prints a sign-in link for the dashboard, the address of the API, and an admin token that expires when the "
            "command ends, or after a day.",
            "rowlock up",
            "rowlock up --app myproject.jobs:app --database postgresql://rowlock@db/jobs --port 8080",
            "rowlock up --no-api",
        )
    )(up)


def up(
    port: options.Port = None,
    no_api: Annotated[bool, typer.Option("--no-api", help="Workers only.")] = False,
    processes: options.Processes = None,
    app: options.App = None,
    database: options.Database = None,
    json: Annotated[bool, typer.Option("--json", help="Print what runs in JSON, and log in JSON lines.")] = False,
) -> int:
    from rowlock.cli.api import kept_serving
    from rowlock.cli.application import full_name, logging_app, run
    from rowlock.cli.output import Output
    from rowlock.cli.worker import supervise

    name = full_name(app)
    application = logging_app(name, database, json)
    out = Output(json)

    async def whole() -> int:
        async with AsyncExitStack() as stack:
            bound = None if no_api else _bound(application, port, out)  # first: a port in use fails before any change
            if bound is not None:
                stack.enter_context(bound)
            await stack.enter_async_context(application)
            applied = await application.migrate()
            running = await _running(application, name, processes, applied, database)
            if bound is not None:
                running |= await stack.enter_async_context(_access(application, bound))
            _announce(running, application, out)
            out.flush()
            if bound is not None:
                await stack.enter_async_context(kept_serving(bound, application, name))
            return await supervise(application, name, (), processes, None, drain=False)

    return run(whole())


def _bound(app: Rowlock, port: int | None, out: Output) -> socket | None:
    """Return the listening socket of the API, or None if its dependencies are not installed."""
    from rowlock.cli.api import serving
    from rowlock.errors import SettingsError

    try:
        web = serving()
    except SettingsError as error:
        out.note(f"{error}; continuing without it")
        return None
    bound: socket = web.bind(app.settings.http_host, app.settings.http_port if port is None else port)
    return bound


@asynccontextmanager
async def _access(app: Rowlock, bound: socket) -> AsyncIterator[dict[str, Any]]:
    """Yield the addresses of dashboard and API and a new admin token, which is revoked at the end."""
    from rowlock.cli.api import serving
    from rowlock.control import tokens
    from rowlock.errors import StoreError
    from rowlock.storage.access import Role
    from rowlock.tokens import new_token

    url = serving().address(bound)
    token, record = new_token("rowlock up", Role.ADMIN, expires_in_seconds=_TOKEN_SECONDS)
    await tokens.add(app.store, record)
    try:
        yield {
            "url": url,
            "open": f"{_here(url)}/sign-in?token={token}",
            "token": token,
            "curl": f"curl -H 'Authorization: Bearer {token}' {url}/api/v1/health",
        }
    finally:
        with suppress(StoreError):  # it expires by itself
            await tokens.revoke(app.store, record.id)


def _here(url: str) -> str:
    """Return the address for a browser on this machine, also if the server listens on all addresses."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


async def _running(
    app: Rowlock, name: str, processes: int | None, applied: list[str], database: str | None
) -> dict[str, Any]:
    """Return what runs, on which database, and which commands to try first."""
    from rowlock.cli.worker import checked_queues
    from rowlock.imports.importer import IMPORT_JOB

    queues = await checked_queues(app, name, ())
    types = sorted(declared.name for declared in app.registry if declared.name != IMPORT_JOB)
    first = "healthPing" if "healthPing" in types else next(iter(types), None)
    elsewhere = "" if database is None else f" --database {app.store.url}"
    return {
        "pid": os.getpid(),
        "app": name,
        "types": types,
        "database": app.store.url,
        "applied": applied,
        "queues": list(queues),
        "processes": processes or app.settings.processes,
        "imports": sorted(app.importers),
        "sync": [
            {"name": hub.name, "enabled": hub.disabled is None, "why": hub.disabled}
            for _, hub in sorted(app.integrations.items())
        ],
        "enqueue": first and f"rowlock enqueue {first} --app {name}{elsewhere}",
        "look": f"rowlock jobs list --app {name}{elsewhere}",
    }


def _announce(running: dict[str, Any], app: Rowlock, out: Output) -> None:
    if out.as_json:
        out.json(running)
        return
    count, applied = running["processes"], running["applied"]
    slots = ", ".join(f"{queue} ({app.engine.concurrency(queue)} at once)" for queue in running["queues"])
    sent = {operation.type for hub in app.integrations.values() for operation in hub.operations.values()}
    types = [name for name in running["types"] if name not in sent]
    sync = [
        f"{each['name']}: " + ("enabled" if each["enabled"] else f"disabled, {each['why']}") for each in running["sync"]
    ]
    out.fields(
        {
            "application": f"{running['app']}: {', '.join(types)}",
            "imports": ", ".join(running["imports"]) or None,
            "sync": "; ".join(sync) or None,
            "database": running["database"] + (f" (migrated: {', '.join(applied)})" if applied else ""),
            "workers": f"{count} process{'es' if count > 1 else ''} on {slots}",
            "open": running.get("open"),
            "api": running.get("url"),
            "token": running.get("token"),
            "try": running.get("curl"),
            "first job": running["enqueue"],
            "look": running["look"],
            "stop": "Ctrl-C",
        }
    )

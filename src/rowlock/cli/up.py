"""`rowlock up`: everything that there is to start, as one process tree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Migrate the database, then run a supervisor and its workers, until Ctrl-C.",
            "rowlock up",
            "rowlock up --app myproject.jobs:app --database postgresql://rowlock@db/jobs",
        )
    )(up)


def up(
    port: Annotated[
        int,
        typer.Option(min=1, max=65_535, help="Where the HTTP API and the pages will be; this release has none yet."),
    ] = 8_000,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Worker processes. Otherwise ROWLOCK_PROCESSES, or 1.", show_default=False),
    ] = None,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: Annotated[bool, typer.Option("--json", help="Say what runs in JSON, and log in JSON lines.")] = False,
) -> int:
    from rowlock.cli.output import Output
    from rowlock.cli.session import full_name, run
    from rowlock.cli.worker import logging_app, supervise

    application = logging_app(app, database, json)
    name = full_name(app)

    async def whole() -> int:
        async with application:
            applied = await application.migrate()
            await _announce(application, name, processes, applied, database, Output(json))
            return await supervise(application, name, (), processes, None, drain=False)

    return run(whole())


async def _announce(
    app: Rowlock, name: str, processes: int | None, applied: list[str], database: str | None, out: Output
) -> None:
    """Say what runs, on which database, and what to do first."""
    from rowlock.cli.worker import checked_queues

    queues = await checked_queues(app, name, ())
    count = processes or app.settings.processes
    types = sorted(declared.name for declared in app.registry)
    first = "healthPing" if "healthPing" in types else types[0]
    elsewhere = "" if database is None else f" --database {app.store.url}"
    other = "" if name == options.APP_DEFAULT else f" --app {name}"
    enqueue = f"rowlock enqueue {first}{other}{elsewhere}"
    if out.as_json:
        out.json(
            {
                "pid": os.getpid(),
                "app": name,
                "types": types,
                "database": app.store.url,
                "applied": applied,
                "queues": list(queues),
                "processes": count,
                "enqueue": enqueue,
            }
        )
        return
    slots = ", ".join(f"{queue} ({app.engine.concurrency(queue)} at once)" for queue in queues)
    out.fields(
        {
            "application": f"{name}: {', '.join(types)}",
            "database": app.store.url + (f" (migrated: {', '.join(applied)})" if applied else ""),
            "workers": f"{count} process{'es' if count > 1 else ''} on {slots}",
            "first job": enqueue,
            "look": f"rowlock jobs list{other}{elsewhere}",
            "stop": "Ctrl-C",
        }
    )

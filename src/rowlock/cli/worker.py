"""`rowlock worker`: a supervisor and its worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_LOOKED_AT = 200  # waiting jobs to check for a handler, in a queue that the application does not declare


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Run jobs: a supervisor and its worker processes, until SIGTERM or Ctrl-C.",
            "rowlock worker",
            "rowlock worker --queue imports --processes 2 --concurrency 8",
            "rowlock worker --drain    # work until nothing is ready, then exit",
        )
    )(worker)


def worker(
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="NAME", help="A queue to work on; repeatable. Default: all queues of the application."
        ),
    ] = None,
    processes: options.Processes = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Concurrent jobs per queue and process. Default: as the queue declares.",
            show_default=False,
        ),
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Work until nothing is ready, then exit.")] = False,
    app: options.App = None,
    database: options.Database = None,
    json: Annotated[bool, typer.Option("--json", help="Log in JSON lines, also on a terminal.")] = False,
) -> int:
    from rowlock.cli.application import full_name, logging_app, ready, run

    name = full_name(app)
    application = logging_app(name, database, json)

    async def whole() -> int:
        async with application:
            await ready(application)
            return await supervise(application, name, queue or (), processes, concurrency, drain=drain)

    return run(whole())


async def supervise(
    app: Rowlock, name: str, queues: Sequence[str], processes: int | None, concurrency: int | None, *, drain: bool
) -> int:
    """Run supervisor and workers until SIGTERM, SIGINT or, with `drain`, nothing is ready; returns the exit code."""
    import asyncio
    import signal

    from rowlock.jobs.worker.supervisor import Supervisor
    from rowlock.observe import logs

    supervisor = Supervisor(
        app.engine,
        name,
        await checked_queues(app, name, queues),
        logs.get(),
        processes=processes or app.settings.processes,
        drain=drain,
        concurrency=concurrency,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()
    return 1 if supervisor.failed else 0


async def checked_queues(app: Rowlock, name: str, queues: Sequence[str]) -> tuple[str, ...]:
    """Return the queues to work on (default: all declared); raises SettingsError for one without handlers."""
    from rowlock.errors import SettingsError
    from rowlock.jobs.registry import checked_name

    if not len(app.registry):
        raise SettingsError(f"{name} has no handlers: declare some with @app.job(...), or choose another with --app")
    declared = app.engine.queues()
    for queue in queues:
        if checked_name(queue, "queue") in {*declared, *app.engine.unserved}:
            continue
        waiting = (await app.jobs(status="queued", queue=queue, limit=_LOOKED_AT)).jobs
        if not any(app.registry.get(job.type) for job in waiting):
            raise SettingsError(
                f"{name} has no handlers for queue {queue!r} (its queues: {', '.join(declared)}): "
                f"correct the name, or declare the queue with app.queue({queue!r})"
            )
    return tuple(dict.fromkeys(queues)) or declared

"""`rowlock queues`: how full they are; pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.records import QueueRecord

commands = typer.Typer(no_args_is_help=True, help="See how full the queues are; pause and resume them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="queues")


@commands.command(
    "list",
    help=options.examples(
        "List the application's queues, and all others that hold jobs or are paused.",
        "rowlock queues list",
        "rowlock queues list --json",
    ),
)
def list_(app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        show_queues(await all_queues(app), out)

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Let nothing of a queue start, on any machine, until it is resumed. Running jobs go on.",
        "rowlock queues pause imports",
    )
)
def pause(
    name: Name,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    return _switch(name, app, database, json, paused=True)


@commands.command(
    help=options.examples("Let a paused queue be worked on again.", "rowlock queues resume imports"),
)
def resume(
    name: Name,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    return _switch(name, app, database, json, paused=False)


def _switch(name: str, app: str, database: str | None, json: bool, *, paused: bool) -> int:
    from rowlock.cli.session import command
    from rowlock.jobs.registry import checked_name

    async def work(app: Rowlock, out: Output) -> None:
        checked_name(name, "queue")
        known = {queue.name for queue in await all_queues(app)}
        await (app.pause(name) if paused else app.resume(name))
        if name not in known:
            out.note(f"no handler is on queue {name!r} and no job waits there; known: {', '.join(sorted(known))}")
        if json:
            out.json({"name": name, "paused": paused})
        else:
            out.line(f"{name} is paused" if paused else f"{name} is open")

    return command(app, database, json, work)


async def all_queues(app: Rowlock) -> list[QueueRecord]:
    """Those that the store knows, and those of the application that are empty."""
    from rowlock.storage.records import QueueRecord

    found = {queue.name: queue for queue in await app.store.queues()}
    for name in app.engine.queues():
        found.setdefault(
            name, QueueRecord(name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)
        )
    return [found[name] for name in sorted(found)]


def queue_json(queue: QueueRecord) -> dict[str, object]:
    return {
        "name": queue.name,
        "paused": queue.paused,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "processing": queue.processing,
        "oldestReadySeconds": queue.oldest_ready_seconds,
    }


def show_queues(queues: list[QueueRecord], out: Output) -> None:
    if out.as_json:
        out.json({"queues": [queue_json(queue) for queue in queues]})
    else:
        queue_table(queues, out)


def queue_table(queues: list[QueueRecord], out: Output) -> None:
    from rowlock.cli.output import duration

    rows = [
        [
            queue.name,
            "paused" if queue.paused else "open",
            queue.ready,
            queue.delayed,
            queue.processing,
            None if queue.oldest_ready_seconds is None else duration(queue.oldest_ready_seconds),
        ]
        for queue in queues
    ]
    out.table(("queue", "state", "ready", "delayed", "processing", "oldest waits"), rows, "no queues")

"""`rowlock queues`: list, pause and resume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.fleet import QueueSchema, SwitchedSchema

commands = typer.Typer(no_args_is_help=True, help="Queues: list, pause, resume.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="queues")


@commands.command(
    "list",
    help=options.examples(
        "List the queues of the application, and all others that contain jobs or are paused.",
        "rowlock queues list",
        "rowlock queues list --json",
    ),
)
@asks()
async def list_(management: Management, out: Output) -> None:
    found = await management.queues()
    out.json(found) if out.as_json else queue_table(found.queues, out)


@commands.command(
    help=options.examples(
        "Pause a queue on all machines: no job of it starts until it is resumed. Running jobs continue.",
        "rowlock queues pause imports",
    )
)
@asks()
async def pause(management: Management, out: Output, name: Name) -> None:
    await _switched(management, out, await management.pause_queue(name))


@commands.command(
    help=options.examples("Resume a paused queue.", "rowlock queues resume imports"),
)
@asks()
async def resume(management: Management, out: Output, name: Name) -> None:
    await _switched(management, out, await management.resume_queue(name))


async def _switched(management: Management, out: Output, done: SwitchedSchema) -> None:
    name = done.name
    if not done.known:
        known = [queue.name for queue in (await management.queues()).queues if queue.name != name]
        out.note(f"queue {name!r} has no handlers and no waiting jobs; known queues: {', '.join(known)}")
    out.tell(done, f"{name} is paused" if done.paused else f"{name} is open")


def queue_table(queues: list[QueueSchema], out: Output) -> None:
    """Print queues as a table."""
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

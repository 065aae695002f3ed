"""`rowlock schedules`: list schedules and their runs; pause, resume, run now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output

commands = typer.Typer(no_args_is_help=True, help="Schedules: list, list runs, pause, resume, run now.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="schedules")


@commands.command(
    "list",
    help=options.examples("List schedules with their next time and last run.", "rowlock schedules list"),
)
@asks()
async def list_(management: Management, out: Output) -> None:
    from rowlock.management.schemas.base import iso

    found = await management.schedules()
    if out.as_json:
        out.json(found)
        return
    rows = [
        (
            s.name,
            s.job_type or "(not declared in this application)",
            s.spec,
            "paused" if s.paused else s.next_at,
            s.last_run and f"{s.last_run.status} at {iso(s.last_run.tick)}",
        )
        for s in found.schedules
    ]
    out.table(("name", "job", "when", "next", "last run"), rows, "no schedules: declare some with app.schedule(...)")


@commands.command(
    help=options.examples(
        "List runs, newest first, with their start, duration and outcome.",
        "rowlock schedules runs",
        "rowlock schedules runs nightly --limit 10 --json",
    )
)
@asks()
async def runs(
    management: Management,
    out: Output,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this schedule.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of runs.")] = 50,
) -> None:
    found = await management.runs(name, limit=limit)
    if out.as_json:
        out.json(found)
        return
    columns = ("name", "tick", "status", "started_at", "ended_at", "job_id", "error")
    rows = [[getattr(run, column) for column in columns] for run in found.runs]
    out.table(("schedule", "tick", "status", "started", "ended", "job", "error"), rows, "no runs yet")


@commands.command(
    help=options.examples("Pause a schedule on all machines.", "rowlock schedules pause nightly"),
)
@asks()
async def pause(management: Management, out: Output, name: Name) -> None:
    out.tell(await management.pause_schedule(name), f"{name} is paused")


@commands.command(
    help=options.examples(
        "Resume a paused schedule with its next time; times that passed meanwhile are skipped.",
        "rowlock schedules resume nightly",
    ),
)
@asks(needs_app=True)
async def resume(management: Management, out: Output, name: Name) -> None:
    from rowlock.management.schemas.base import iso

    done = await management.resume_schedule(name)
    out.tell(done, f"{name} is resumed; its next time is {iso(done.next_at)}")


@commands.command(
    help=options.examples("Run the job of a schedule now.", "rowlock schedules run nightly"),
)
@asks(needs_app=True)
async def run(management: Management, out: Output, name: Name) -> None:
    done = await management.run_schedule(name)
    out.tell(done, f"job {done.job_id} is queued")

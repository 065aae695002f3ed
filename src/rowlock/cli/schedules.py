"""`rowlock schedules`: what runs when, how its runs went; pause, resume, run now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.jobs.schedule import Schedule
    from rowlock.storage.reliability import RunRecord

commands = typer.Typer(no_args_is_help=True, help="Schedules and their runs; pause, resume, run now.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="schedules")


@commands.command(
    "list",
    help=options.examples("List schedules with their next tick and last run.", "rowlock schedules list"),
)
def list_(app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        shapes = await _schedules(app)
        if json:
            out.json({"schedules": shapes})
            return
        rows = [
            (
                s["name"],
                s["jobType"] or "(not declared here)",
                s["spec"],
                "paused" if s["paused"] else s["nextAt"],
                s["lastRun"] and f"{s['lastRun']['status']} at {s['lastRun']['tick']}",
            )
            for s in shapes
        ]
        out.table(
            ("name", "job", "when", "next", "last run"), rows, "no schedules: declare some with app.schedule(...)"
        )

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "List runs, the latest first: when, how long, how they ended.",
        "rowlock schedules runs",
        "rowlock schedules runs nightly --limit 10 --json",
    )
)
def runs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this schedule.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many runs.")] = 50,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        found = await app.store.runs(name, limit)
        if json:
            out.json({"runs": [run_json(run) for run in found]})
            return
        shapes = [run_json(run) for run in found]
        columns = ("name", "tick", "status", "startedAt", "endedAt", "jobId", "error")
        rows = [[shape[column] for column in columns] for shape in shapes]
        out.table(("schedule", "tick", "status", "started", "ended", "job", "error"), rows, "no runs yet")

    return command(app, database, json, work)


@commands.command(
    help=options.examples("Let no tick of a schedule fire, on any machine.", "rowlock schedules pause nightly"),
)
def pause(
    name: Name, app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        await _declare(app)
        if not await app.store.pause_schedule(name):
            raise UsageError(_unknown(app, name))
        out.json({"name": name, "paused": True}) if json else out.line(f"{name} is paused")

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Let a paused schedule go on with its next tick; what was due meanwhile is left out.",
        "rowlock schedules resume nightly",
    ),
)
def resume(
    name: Name, app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.output import iso
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        next_at = _require(app, name).next_after(await app.store.now())
        await _declare(app)
        await app.store.resume_schedule(name, next_at)
        if json:
            out.json({"name": name, "paused": False, "nextAt": iso(next_at)})
        else:
            out.line(f"{name} goes on at {iso(next_at)}")

    return command(app, database, json, work)


@commands.command(
    help=options.examples("Run the job of a schedule now, out of turn.", "rowlock schedules run nightly"),
)
def run(
    name: Name, app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.session import command
    from rowlock.storage.reliability import Tick

    async def work(app: Rowlock, out: Output) -> None:
        schedule = _require(app, name)
        now = await app.store.now()
        job = app.engine.enqueuer.prepare(schedule.type, schedule.payload, **schedule.options)
        receipt = await app.store.fire(Tick(name, now, None, now, job))
        assert receipt is not None
        out.json({"name": name, "jobId": receipt.job_id}) if json else out.line(f"job {receipt.job_id} is queued")

    return command(app, database, json, work)


async def _declare(app: Rowlock) -> None:
    """Make the application's schedules known: a command may come before the first worker."""
    now = await app.store.now()
    await app.store.declare_schedules([(s.name, s.spec, s.next_after(now)) for s in app.schedules.values()])


def _require(app: Rowlock, name: str) -> Schedule:
    found = app.schedules.get(name)
    if found is None:
        raise UsageError(_unknown(app, name))
    return found


def _unknown(app: Rowlock, name: str) -> str:
    return f"no schedule is called {name!r}; known: {', '.join(sorted(app.schedules)) or 'none'}"


async def _schedules(app: Rowlock) -> list[dict[str, Any]]:
    from rowlock.cli.output import iso

    shapes = []
    now = await app.store.now()
    stored = {record.name: record for record in await app.store.schedules()}
    for name in sorted(stored.keys() | app.schedules.keys()):
        record, declared = stored.get(name), app.schedules.get(name)
        last = await app.store.runs(name, 1)
        next_at = record.next_at if record else declared.next_after(now) if declared else None
        shapes.append(
            {
                "name": name,
                "jobType": declared and declared.type,
                "spec": declared.spec if declared else record and record.spec,
                "missed": declared and declared.missed.value,
                "paused": record is not None and record.paused_at is not None,
                "nextAt": next_at and iso(next_at),
                "lastRun": run_json(last[0]) if last else None,
            }
        )
    return shapes


def run_json(run: RunRecord) -> dict[str, Any]:
    """One run as the HTTP API would answer it."""
    from rowlock.cli.output import iso

    return {
        "name": run.name,
        "tick": iso(run.tick),
        "jobId": run.job_id,
        "status": run.status.value,
        "enqueuedAt": iso(run.enqueued_at),
        "startedAt": run.started_at and iso(run.started_at),
        "endedAt": run.ended_at and iso(run.ended_at),
        "error": run.error,
    }

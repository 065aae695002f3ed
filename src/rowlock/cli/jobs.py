"""`rowlock jobs`: list and show jobs, and retry, cancel or run one now."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.management import asks
from rowlock.cli.times import Since, Until, past_of

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.jobs import JobSchema, PageSchema

commands = typer.Typer(no_args_is_help=True, help="Jobs: list, show, retry, cancel, run now.")

JobId = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of jobs.")]
Cursor = Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after an earlier page: its nextCursor.")]


class JobStatus(StrEnum):
    queued = "queued"
    processing = "processing"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="jobs")


@commands.command(
    "list",
    help=options.examples(
        "List jobs, newest first.",
        "rowlock jobs list --status failed --type email.send",
        "rowlock jobs list --since 2h",
        "rowlock jobs list --limit 500 --json",
    ),
)
@asks()
async def list_(
    management: Management,
    out: Output,
    status: Annotated[JobStatus | None, typer.Option(help="Only jobs with this status.")] = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    page = await management.jobs(
        status=status,
        type=type,
        queue=queue,
        since=past_of(since, "--since"),
        until=past_of(until, "--until"),
        limit=limit,
        cursor=cursor,
    )
    show_page(page, out)


@commands.command(
    help=options.examples(
        "Show one job in full. Secrets in its payload and result are redacted.",
        "rowlock jobs show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
        "rowlock jobs show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a --json --raw",
    )
)
@asks()
async def show(
    management: Management,
    out: Output,
    id: JobId,
    raw: Annotated[bool, typer.Option("--raw", help="Show everything, including secrets.")] = False,
) -> None:
    show_job(await management.job(id, raw=raw), out)


@commands.command(
    help=options.examples(
        "Retry a failed or cancelled job, with fresh attempts. For many jobs see `rowlock dead retry`.",
        "rowlock jobs retry 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
@asks(needs_app=True)
async def retry(management: Management, out: Output, id: JobId) -> None:
    job = await management.retry(id)
    out.tell(job, f"{job.id}  {job.type} is queued again on {job.queue}")


@commands.command(
    help=options.examples(
        "Cancel a waiting job, or request the cancellation of a running one.",
        "rowlock jobs cancel 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
@asks()
async def cancel(management: Management, out: Output, id: JobId) -> None:
    job = await management.cancel(id)
    state = "is cancelled" if job.status == "cancelled" else "is running; its handler is asked to stop"
    out.tell(job, f"{job.id}  {job.type} {state}")


@commands.command(
    "run-now",
    help=options.examples(
        "Make a delayed job available now, in its place in the queue.",
        "rowlock jobs run-now 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    ),
)
@asks()
async def run_now(management: Management, out: Output, id: JobId) -> None:
    job = await management.run_now(id)
    out.tell(job, f"{job.id}  {job.type} is ready on {job.queue}")


@commands.command(
    help=options.examples(
        "Show the history of a job: when it was enqueued, its recorded attempts, and how it ended.",
        "rowlock jobs timeline 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
        "rowlock jobs timeline 01932c07-2ab0-7000-8000-3f6c1e2d4b5a --json",
    )
)
@asks()
async def timeline(management: Management, out: Output, id: JobId) -> None:
    found = await management.timeline(id)
    if out.as_json:
        out.json(found)
        return
    names = ("at", "kind", "attempt", "seconds", "owner", "reason")
    out.table(names, [[getattr(event, name) for name in names] for event in found.events], "nothing is recorded")
    if found.more:
        out.note("older attempts are not shown: see `rowlock failures list --job`")


def show_job(job: JobSchema, out: Output) -> None:
    """Print one job: its record as JSON, or a line per field that has a value."""
    import orjson

    if out.as_json:
        out.json(job)
        return
    shown = {name: value for name, value in job.json_object().items() if value is not None and value is not False}
    for name in ("payload", "result"):
        if name in shown:
            shown[name] = orjson.dumps(shown[name]).decode()
    del shown["guidance"]
    out.fields(shown)
    for step in job.guidance:
        out.note(step)


def show_page(page: PageSchema, out: Output, empty: str = "no jobs match") -> None:
    """Print jobs as a table, or in JSON as {jobs, nextCursor}."""
    if out.as_json:
        out.json(page)
        return
    out.table(("id", "type", "queue", "status", "attempts", "when", "note"), list(map(_row, page.jobs)), empty)
    if page.next_cursor is not None:
        out.note(f"there are more: --cursor {page.next_cursor}")


def _row(job: JobSchema) -> list[object]:
    from rowlock.cli.output import ago
    from rowlock.storage.records import Status

    status = job.status
    last = job.available_at if status is Status.QUEUED else job.updated_at
    note = job.error if status.final else job.message
    attempts = f"{job.attempts}/{job.max_attempts}"
    return [job.id, job.type, job.queue, status.value, attempts, ago(last), note]

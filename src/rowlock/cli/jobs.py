"""`rowlock jobs`: look at jobs, cancel one, run one again."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.records import JobRecord, Page

commands = typer.Typer(no_args_is_help=True, help="Look at jobs, cancel one, run one again.")

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="At most so many jobs.")]
Cursor = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Go on after an earlier page: the nextCursor that it gave.")
]


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
        "rowlock jobs list --status failed --type demo.sleep",
        "rowlock jobs list --limit 500 --json",
    ),
)
def list_(
    status: Annotated[JobStatus | None, typer.Option(help="Only jobs in this state.")] = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        try:
            page = await app.jobs(status=status, type=type, queue=queue, limit=limit, cursor=cursor)
        except ValueError as error:
            raise UsageError(f"--cursor: {error}") from None
        show_page(page, app, out)

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Show one job, whole. Secrets in its payload and result are left out.",
        "rowlock jobs show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
        "rowlock jobs show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a --json --raw",
    )
)
def show(
    id: JobId,
    raw: Annotated[bool, typer.Option("--raw", help="Show everything, secrets too.")] = False,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        show_job(await found(app, id), app, out, raw=raw)

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Queue a failed or cancelled job again, with fresh attempts. For many at once see `rowlock dead retry`.",
        "rowlock jobs retry 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
def retry(
    id: JobId,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        await app.retry(id)
        record = await found(app, id)
        show_job(record, app, out) if json else out.line(f"{id}  {record.type} is queued again on {record.queue}")

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Cancel a waiting job, or ask a running one to stop.",
        "rowlock jobs cancel 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
def cancel(
    id: JobId,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        from rowlock.cli.errors import JobIsOver
        from rowlock.storage.records import CancelResult

        result = await app.cancel(id)
        record = await found(app, id)
        if result is CancelResult.ALREADY_FINAL:
            raise JobIsOver(f"job {id} is {record.status.value} already; there is nothing to cancel")
        told = "is cancelled" if result is CancelResult.CANCELLED else "runs; its handler is told to stop"
        show_job(record, app, out) if json else out.line(f"{id}  {record.type} {told}")

    return command(app, database, json, work)


async def found(app: Rowlock, job_id: str) -> JobRecord:
    from rowlock.errors import JobNotFound

    record = await app.get(job_id)
    if record is None:
        raise JobNotFound(f"no job has the id {job_id}; retention may have removed it")
    return record


def show_job(job: JobRecord, app: Rowlock, out: Output, *, raw: bool = False) -> None:
    """One job: its record as JSON, or a line per field that has a value."""
    import orjson

    from rowlock.cli.output import job_json

    shape = job_json(job, None if raw else app.redact)
    if out.as_json:
        out.json(shape)
        return
    shown = {name: value for name, value in shape.items() if value is not None and value is not False}
    for name in ("payload", "result"):
        if name in shown:
            shown[name] = orjson.dumps(shown[name]).decode()
    out.fields(shown)


def show_page(page: Page, app: Rowlock, out: Output, empty: str = "no jobs match") -> None:
    """Jobs as a table, or as {jobs, nextCursor}."""
    from rowlock.cli.output import JOB_COLUMNS, job_json, job_rows

    if out.as_json:
        out.json({"jobs": [job_json(job, app.redact) for job in page.jobs], "nextCursor": page.next_cursor})
        return
    out.table(JOB_COLUMNS, job_rows(page.jobs, app.redact), empty)
    if page.next_cursor is not None:
        out.note(f"there are more: --cursor {page.next_cursor}")

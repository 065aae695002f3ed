"""`rowlock failures`: every failed attempt, with its reason and where it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.jobs import Cursor

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.reliability import FailureRecord

commands = typer.Typer(no_args_is_help=True, help="Failed attempts: what went wrong, when, and how often.")

FailureId = Annotated[str, typer.Argument(metavar="ID", help="The failure's id.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="At most so many failures.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="failures")


@commands.command(
    "list",
    help=options.examples(
        "List failed attempts, newest first.",
        "rowlock failures list --final",
        "rowlock failures list --name generateMonthlySnapshots --limit 10",
        "rowlock failures list --job 01932c07-2ab0-7000-8000-3f6c1e2d4b5a --json",
    ),
)
def list_(
    name: Annotated[str | None, typer.Option("--name", metavar="TYPE", help="Only of jobs of this type.")] = None,
    company: Annotated[str | None, typer.Option("--company", metavar="ID", help="Only of this company.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job.")] = None,
    final: Annotated[bool, typer.Option("--final", help="Only last attempts: the job is dead.")] = False,
    unresolved: Annotated[bool, typer.Option("--unresolved", help="Only where the job was not retried since.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.output import iso
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        try:
            page = await app.failures(
                company_id=company,
                job_name=name,
                job_id=job,
                final=True if final else None,
                unresolved=unresolved,
                limit=limit,
                cursor=cursor,
            )
        except ValueError as error:
            raise UsageError(f"--cursor: {error}") from error
        if json:
            out.json({"failures": [failure_json(f, app) for f in page.failures], "nextCursor": page.next_cursor})
            return
        rows = [
            (f.id, f.job_name, f"{f.attempts}/{f.max_attempts}", _state(f), iso(f.first_failed_at), f.failed_reason)
            for f in page.failures
        ]
        out.table(("id", "job", "attempt", "state", "failed at", "reason"), rows, "no failures match")
        if page.next_cursor is not None:
            out.note(f"there are more: --cursor {page.next_cursor}")

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Show one failed attempt whole, with its stack.",
        "rowlock failures show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
def show(
    id: FailureId,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command
    from rowlock.errors import JobNotFound

    async def work(app: Rowlock, out: Output) -> None:
        found = await app.store.failure(id)
        if found is None:
            raise JobNotFound(f"no failure has the id {id}; retention may have removed it")
        shape = failure_json(found, app)
        if json:
            out.json(shape)
            return
        stack = shape.pop("stackTrace")
        out.fields(shape)
        for line in (stack or "").splitlines():
            out.line(f"  {line}")

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Queue the job of a failed attempt again, with fresh attempts; the failure counts as resolved.",
        "rowlock failures retry 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
def retry(
    id: FailureId,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        job_id = await app.retry_failure(id)
        out.json({"failureId": id, "jobId": job_id}) if json else out.line(f"job {job_id} is queued again")

    return command(app, database, json, work)


def _state(failure: FailureRecord) -> str:
    if failure.resolved_at is not None:
        return "resolved"
    return "dead" if failure.is_final_attempt else "retried"


def failure_json(failure: FailureRecord, app: Rowlock) -> dict[str, Any]:
    """One failure as the HTTP API would answer it."""
    from rowlock.cli.output import iso
    from rowlock.jobs.payload import loads

    return {
        "id": failure.id,
        "jobId": failure.job_id,
        "jobName": failure.job_name,
        "queueName": failure.queue_name,
        "companyId": failure.company_id,
        "payload": app.redact.value(loads(failure.payload)),
        "attempts": failure.attempts,
        "maxAttempts": failure.max_attempts,
        "isFinalAttempt": failure.is_final_attempt,
        "failedReason": app.redact.text(failure.failed_reason),
        "stackTrace": failure.stack_trace and app.redact.text(failure.stack_trace),
        "firstFailedAt": iso(failure.first_failed_at),
        "resolvedAt": None if failure.resolved_at is None else iso(failure.resolved_at),
    }

"""`rowlock failures`: list and show failed attempts with their reasons and stacks, and retry their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.jobs import Cursor
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.dead_letters import FailureSchema

commands = typer.Typer(no_args_is_help=True, help="Failed attempts: list, show, retry.")

FailureId = Annotated[str, typer.Argument(metavar="ID", help="The id of the failure.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of failures.")]


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
@asks()
async def list_(
    management: Management,
    out: Output,
    name: Annotated[str | None, typer.Option("--name", metavar="TYPE", help="Only of jobs of this type.")] = None,
    company: Annotated[str | None, typer.Option("--company", metavar="ID", help="Only of this company.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job.")] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Only last attempts, after which the job became a dead letter.")
    ] = False,
    unresolved: Annotated[
        bool, typer.Option("--unresolved", help="Only failures whose job was not retried since.")
    ] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    page = await management.failures(
        company_id=company,
        job_name=name,
        job_id=job,
        final=True if final else None,
        unresolved=unresolved,
        limit=limit,
        cursor=cursor,
    )
    if out.as_json:
        out.json(page)
        return
    rows = [
        (
            f.id,
            f.job_name,
            f"{f.attempts}/{f.max_attempts}",
            _state(f),
            f.first_failed_at,
            f.occurrences,
            f.failed_reason,
        )
        for f in page.failures
    ]
    out.table(("id", "job", "attempt", "state", "failed at", "times", "reason"), rows, "no failures match")
    if page.next_cursor is not None:
        out.note(f"there are more: --cursor {page.next_cursor}")


@commands.command(
    help=options.examples(
        "Show one failed attempt with its stack trace.",
        "rowlock failures show 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
@asks()
async def show(management: Management, out: Output, id: FailureId) -> None:
    failure = await management.failure(id)
    if out.as_json:
        out.json(failure)
        return
    fields = failure.json_object()
    out.fields({name: value for name, value in fields.items() if name != "stackTrace"})
    for line in (failure.stack_trace or "").splitlines():
        out.line(f"  {line}")


@commands.command(
    help=options.examples(
        "Retry the job of a failed attempt, with fresh attempts; the failure counts as resolved.",
        "rowlock failures retry 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
@asks(needs_app=True)
async def retry(management: Management, out: Output, id: FailureId) -> None:
    done = await management.retry_failure(id)
    out.tell(done, f"job {done.job_id} is queued again")


def _state(failure: FailureSchema) -> str:
    if failure.resolved_at is not None:
        return "resolved"
    return "dead" if failure.is_final_attempt else "retried"

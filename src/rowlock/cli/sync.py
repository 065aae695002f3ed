"""`rowlock sync`: list and monitor integrations, send operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.enqueue import over, payload_of
from rowlock.cli.errors import UsageError
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.sync import IntegrationSchema, OperationSchema, SyncMonitorSchema, SyncStatsSchema

commands = typer.Typer(no_args_is_help=True, help="Outbound sync: list integrations, monitor them, send operations.")

Name = Annotated[
    str | None,
    typer.Argument(metavar="[INTEGRATION]", help="The integration; optional if there is only one.", show_default=False),
]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="sync")


@commands.command(
    "list",
    help=options.examples(
        "List integrations with their operations, and how to enable those that are disabled.",
        "rowlock sync list",
        "rowlock sync list --json",
    ),
)
@asks(needs_app=True)
async def list_(management: Management, out: Output) -> None:
    found = await management.integrations()
    if out.as_json:
        out.json(found)
        return
    rows = [
        [each.name, operation.name, _state(each, operation), operation.priority, operation.key]
        for each in found.integrations
        for operation in each.operations
    ]
    columns = ("integration", "operation", "state", "priority", "key")
    out.table(columns, rows, "no integrations: declare one with app.integration(...)")
    for each in found.integrations:
        if not each.enabled:
            out.note(f"{each.name} is disabled: {each.why}")


@commands.command(
    help=options.examples(
        "Count the jobs of an integration: pending, processing, failed (to be retried), dead letters, and completed in "
        "24 hours.",
        "rowlock sync stats hubspot",
        "rowlock sync stats --json | jq .dead",
    )
)
@asks(needs_app=True)
async def stats(management: Management, out: Output, integration: Name = None) -> None:
    found = await management.sync_stats(await _chosen(management, integration))
    out.json(found) if out.as_json else out.fields(_counts(found))


@commands.command(
    help=options.examples(
        "Show the state of an integration: counts, mean duration, lag, remaining calls of its limits, and its 20 most "
        "recent failures.",
        "rowlock sync monitor hubspot",
        "rowlock sync monitor hubspot --server https://jobs.example.org --token-file ~/.rowlock-token --json",
    )
)
@asks(needs_app=True)
async def monitor(management: Management, out: Output, integration: Name = None) -> None:
    found = await management.sync_monitor(await _chosen(management, integration))
    out.json(found) if out.as_json else _show(found, out)


@commands.command(
    help=options.examples(
        "Send an operation. The output starts with the id of its job, which is durable when the command returns. If a "
        "job with the same key waits or runs, it takes over the payload and is the one returned.",
        """rowlock sync send hubspot create_contact --payload '{"email": "ada@example.org"}'""",
        "rowlock sync send hubspot sync_payment --payload @payment.json --priority 3 --wait",
    )
)
@asks(create=True, needs_app=True)
async def send(
    management: Management,
    out: Output,
    integration: Annotated[str, typer.Argument(metavar="INTEGRATION", help="The integration.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="One of its operations.")],
    payload: Annotated[
        str,
        typer.Option(
            metavar="JSON", help="The fields of the operation, a JSON object; @FILE reads a file, - standard input."
        ),
    ] = "{}",
    priority: Annotated[
        int | None, typer.Option(help="1 to 10; lower runs first (default: that of the operation, or 5).")
    ] = None,
    delay_seconds: Annotated[float, typer.Option(help="Delay in seconds before it is sent.")] = 0.0,
    company_id: Annotated[str | None, typer.Option(metavar="ID", help="The company that the job belongs to.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it ends; exit code 1 unless it succeeds.")] = False,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="Time limit of --wait in seconds.")] = 3_600.0,
) -> int:
    job = await management.sync_send(
        integration,
        operation,
        payload_of(payload),
        priority=priority,
        delay_seconds=delay_seconds,
        company_id=company_id,
    )
    if wait:
        job = await over(management, job, wait_seconds, out)
    verb = "" if job.created else "already exists: "
    out.tell(job, f"{job.id}  {verb}{job.type} on {job.queue}, {job.status}")
    return 0 if not wait or job.status == "succeeded" else 1


async def _chosen(management: Management, given: str | None) -> str:
    """Return the given integration, or the only one; otherwise raises UsageError."""
    if given is not None:
        return given
    names: list[str] = [each.name for each in (await management.integrations()).integrations]
    if len(names) == 1:
        return names[0]
    raise UsageError(f"name an integration; known: {', '.join(names) or 'none; declare one with app.integration(...)'}")


def _state(integration: IntegrationSchema, operation: OperationSchema) -> str:
    if not integration.enabled:
        return "disabled"
    return "ok" if operation.enabled else "skipped"


def _counts(found: SyncStatsSchema) -> dict[str, object]:
    return {
        "pending": f"{found.pending:,}",
        "processing": f"{found.processing:,}",
        "failed": f"{found.failed:,} (to be retried)",
        "dead": f"{found.dead:,}",
        "completed": f"{found.completed24h:,} in 24 hours",
    }


def _show(found: SyncMonitorSchema, out: Output) -> None:
    from rowlock.cli.output import ago, duration
    from rowlock.management.schemas.base import iso

    mean, lag = found.mean_processing_ms, found.lag_seconds
    state = "enabled" if found.enabled else f"disabled: {found.why}"
    limits = {
        f"{each.group or 'calls'} in {duration(each.per_seconds)}": f"{each.in_use:,} of {each.count:,}"
        + (f", paused until {iso(each.rests_until)}" if each.rests_until is not None else "")
        for each in found.limits
    }
    out.fields(
        {
            found.integration: state,
            **_counts(found.counts),
            "mean time": None if mean is None else f"{mean:,.0f} ms",
            "lag": None if lag is None else duration(lag),
            **limits,
        }
    )
    rows = [
        [
            *(each.job_id, each.operation, each.status, each.retry_count),
            *(each.next_retry_at and ago(each.next_retry_at), each.error),
        ]
        for each in found.failures
    ]
    out.line("")
    out.table(("id", "operation", "status", "retries", "next retry", "error"), rows, "no failures")

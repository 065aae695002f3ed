"""`rowlock health`: the state of the database, jobs, queues and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowlock.cli import options
from rowlock.cli.management import asks
from rowlock.cli.queues import queue_table

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.fleet import HealthSchema


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Show whether the database is available, the number of jobs, and the workers. "
            "Exit code 1 when the database is down or not migrated.",
            "rowlock health",
            "rowlock health --json | jq .jobs.failed",
            "rowlock health --server https://jobs.example.org --token-file ~/.rowlock-token",
        )
    )(health)


@asks()
async def health(management: Management, out: Output) -> None:
    found = await management.health()
    out.json(found) if out.as_json else _show(found, out)


def _show(found: HealthSchema, out: Output) -> None:
    out.fields(
        {
            "status": found.status,
            "database": f"{found.database} (schema {found.schema_.current})",
            "jobs": ", ".join(f"{count:,} {status}" for status, count in found.jobs.items()),
            "failures": f"{found.failures.failed_last_hour:,} in the last hour, "
            f"{found.failures.failed_last24h:,} in the last day",
        }
    )
    rows = [
        [worker.name, ", ".join(worker.queues), "yes" if worker.alive else "no", worker.seen_at]
        for worker in found.workers
    ]
    out.line("")
    queue_table(found.queues, out)
    out.line("")
    out.table(("worker", "queues", "alive", "seen"), rows, "no workers: start some with `rowlock worker`")
    for warning in found.warnings:
        out.note(warning)

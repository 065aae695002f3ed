"""`rowlock health`: is the store there, is work being done?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.records import QueueRecord


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Say whether the database answers, how many jobs there are, and who works. "
            "Exit code 1 when the database is down or not migrated.",
            "rowlock health",
            "rowlock health --json | jq .jobs.failed",
        )
    )(health)


def health(
    app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.queues import all_queues
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        queues = await all_queues(app)
        found = await look(app, queues)
        out.json(found) if json else _show(found, queues, out)

    return command(app, database, json, work)


async def look(app: Rowlock, queues: list[QueueRecord]) -> dict[str, Any]:
    """The state of the store in one object."""
    from datetime import UTC, datetime

    from rowlock.cli.output import iso
    from rowlock.cli.queues import queue_json
    from rowlock.observe.health import failures

    state = await app.store.schema()
    counts = await app.store.counts()
    now = datetime.now(UTC)
    workers: list[dict[str, Any]] = [
        {
            "id": worker.id,
            "name": worker.name,
            "queues": list(worker.queues),
            "startedAt": iso(worker.started_at),
            "seenAt": iso(worker.seen_at),
            "alive": (now - worker.seen_at).total_seconds() * 1000 <= app.settings.visibility_ms,
        }
        for worker in await app.store.workers()
    ]
    served = {queue for worker in workers if worker["alive"] for queue in worker["queues"]}
    warnings = []
    for queue in queues:
        if queue.paused:
            warnings.append(f"queue {queue.name} is paused ({queue.ready:,} jobs are ready)")
        elif queue.ready and queue.name not in served:
            warnings.append(f"{queue.ready:,} jobs are ready on queue {queue.name} and no worker serves it")
    failed = await failures(app.store)
    if failed["failedLastHour"] >= app.settings.spike_threshold:
        warnings.append(f"{failed['failedLastHour']:,} attempts failed in the last hour: see `rowlock failures list`")
    return {
        "status": "warning" if warnings else "ok",
        "database": app.store.url,
        "schema": {"current": state.current, "wanted": state.wanted},
        "jobs": {status.value: count for status, count in counts.items()},
        "failures": failed,
        "queues": [queue_json(queue) for queue in queues],
        "workers": workers,
        "warnings": warnings,
    }


def _show(found: dict[str, Any], queues: list[QueueRecord], out: Output) -> None:
    from rowlock.cli.queues import queue_table

    out.fields(
        {
            "status": found["status"],
            "database": f"{found['database']} (schema {found['schema']['current']})",
            "jobs": ", ".join(f"{count:,} {status}" for status, count in found["jobs"].items()),
            "failures": f"{found['failures']['failedLastHour']:,} in the last hour, "
            f"{found['failures']['failedLast24h']:,} in the last day",
        }
    )
    rows = [
        [worker["name"], ", ".join(worker["queues"]), "yes" if worker["alive"] else "no", worker["seenAt"]]
        for worker in found["workers"]
    ]
    out.line("")
    queue_table(queues, out)
    out.line("")
    out.table(("worker", "queues", "alive", "seen"), rows, "no workers: start some with `rowlock worker`")
    for warning in found["warnings"]:
        out.note(warning)

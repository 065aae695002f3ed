"""`rowlock migrate` and `rowlock prune`: the care of the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Bring the database's schema up to date. Safe to run on several machines at once, and again.",
            "rowlock migrate",
            "rowlock migrate --database postgresql://rowlock@db/jobs",
        )
    )(migrate)
    app.command(
        help=options.examples(
            "Remove finished jobs that are older than the settings keep them. Workers do the same every hour.",
            "rowlock prune",
            "ROWLOCK_KEEP_SUCCEEDED_DAYS=7 rowlock prune --json",
        )
    )(prune)


def migrate(
    app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        applied = await app.migrate()
        state = await app.store.schema()
        if json:
            out.json(
                {
                    "database": app.store.url,
                    "applied": applied,
                    "schema": {"current": state.current, "wanted": state.wanted},
                }
            )
            return
        for migration in applied:
            out.line(f"applied {migration}")
        out.line(f"{app.store.url} is at schema {state.current}{'' if applied else '; nothing to do'}")

    return command(app, database, json, work, check=False)


def prune(app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        from rowlock.jobs.keeper import prune as prune_store
        from rowlock.observe import logs

        removed = await prune_store(app.engine, logs.get())
        counts = {status.value: count for status, count in removed.jobs.items()}
        records = {"failures": removed.failures, "locks": removed.locks, "runs": removed.runs}
        if json:
            out.json({"removed": counts | records})
            return
        out.line("removed jobs: " + ", ".join(f"{count:,} {status}" for status, count in counts.items()))
        out.line("removed records: " + ", ".join(f"{count:,} {kind}" for kind, count in records.items()))

    return command(app, database, json, work)

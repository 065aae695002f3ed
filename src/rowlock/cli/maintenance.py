"""`rowlock migrate` and `rowlock prune`: maintenance of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowlock.cli import options
from rowlock.cli.management import asks, works

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output

_JOBS = ("succeeded", "failed", "cancelled")


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Migrate the database schema. Safe to run repeatedly and on several machines at once.",
            "rowlock migrate",
            "rowlock migrate --database postgresql://rowlock@db/jobs",
        )
    )(migrate)
    app.command(
        help=options.examples(
            "Delete finished jobs whose retention time has passed. Workers do the same every hour.",
            "rowlock prune",
            "ROWLOCK_KEEP_SUCCEEDED_DAYS=7 rowlock prune --json",
        )
    )(prune)


@works(check=False)
async def migrate(app: Rowlock, out: Output) -> None:
    before = await app.store.schema()
    applied = await app.migrate()
    state = await app.store.schema()
    if before.current and before.oldest < state.oldest:
        out.note(
            f"releases with a schema older than {state.oldest} no longer work with this database: "
            "restart their workers and servers with this release"
        )
    if out.as_json:
        schema = {"current": state.current, "wanted": state.wanted}
        out.json({"database": app.store.url, "applied": applied, "schema": schema})
        return
    for migration in applied:
        out.line(f"applied {migration}")
    said = "" if applied else "; nothing to do"
    if state.newer:
        said = f", of a newer release; this one has {state.wanted} and works with it; nothing to do"
    out.line(f"{app.store.url} is at schema {state.current}{said}")


@asks(needs_app=True)
async def prune(management: Management, out: Output) -> None:
    done = await management.prune()
    if out.as_json:
        out.json(done)
        return
    removed = {kind: f"{count:,} {kind}" for kind, count in done.removed.items()}
    out.line("deleted jobs: " + ", ".join(text for kind, text in removed.items() if kind in _JOBS))
    out.line("deleted records: " + ", ".join(text for kind, text in removed.items() if kind not in _JOBS))

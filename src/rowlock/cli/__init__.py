"""The command line: one file per group of commands; exit code 0 ok, 1 failed, 2 usage.

A command imports what it needs when it runs, so that `rowlock --help` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rowlock.cli import (
    dead,
    doctor,
    enqueue,
    failures,
    health,
    import_file,
    imports,
    init,
    jobs,
    metrics,
    queues,
    schedules,
    serve,
    sync,
    token,
    up,
    worker,
)
from rowlock.cli import maintenance as store
from rowlock.cli.errors import reported

app = typer.Typer(name="rowlock", no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
for part in (
    *(init, up, worker, serve, enqueue, jobs, dead, failures, import_file, imports, sync, schedules, queues),
    *(token, store, health, metrics, doctor),
):
    part.register(app)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"rowlock {version('rowlock')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable background jobs and imports on the database that you already run."""


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point: run one command and exit with its code."""
    sys.exit(reported(app, sys.argv[1:] if argv is None else argv))


__all__ = ["app", "main"]

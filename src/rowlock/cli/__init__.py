"""The command line: one file per group of commands; exit code 0 ok, 1 failed, 2 usage.

What a command needs is imported when it runs, so that `rowlock --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from rowlock.cli import worker

app = typer.Typer(
    name="rowlock",
    help="Durable background jobs on the database that you already run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
worker.register(app)


@app.callback()
def root() -> None:
    """Durable background jobs on the database that you already run."""


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point: run one command and exit with its code."""
    from rowlock.cli.errors import reported

    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(reported(app, arguments))

"""The options that many commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

APP_DEFAULT = "backoffice:app"

App = Annotated[
    str,
    typer.Option("--app", metavar="MODULE:ATTR", envvar="ROWLOCK_APP", help="The application with the job types."),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The database, for example sqlite:///jobs.db or postgresql://user@host/name. "
        "Otherwise DATABASE_URL, or sqlite:///rowlock.db.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
JobType = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only jobs of this type.")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")]


def examples(text: str, *lines: str) -> str:
    """A help text that ends in examples, one per line."""
    return "\n".join([text.strip(), "", "\b", "Examples:", *(f"  {line}" for line in lines)])

"""The options that many commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        envvar="ROWLOCK_APP",
        help="The application with the job types. `rowlock init` writes one to start from.",
        show_default=False,
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The database, for example sqlite:///jobs.db, postgresql://user@host/name or mongodb://host/name. "
        "Default: DATABASE_URL, or sqlite:///rowlock.db.",
        show_default=False,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="ROWLOCK_SERVER",
        help="Ask this server, for example https://jobs.example.org, instead of a local application. Set the token in "
        "ROWLOCK_TOKEN or --token-file, because other users of this machine can read command lines.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="PATH", help="A file with the token for --server.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
JobType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Only jobs of this type; 'name.*': all types with this prefix."),
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")]
Processes = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Worker processes. Default: ROWLOCK_PROCESSES, or 1.", show_default=False),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="The port of the HTTP API; 0: any free port. Default: ROWLOCK_HTTP_PORT, or 8000.",
        show_default=False,
    ),
]


def examples(text: str, *lines: str) -> str:
    """Return a help text that ends in examples, one per line."""
    return "\n".join([text.strip(), "", "\b", "Examples:", *(f"  {line}" for line in lines)])

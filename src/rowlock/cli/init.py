"""`rowlock init`: writes a small application to start from."""

from __future__ import annotations

import os
import shlex
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError

FILES = {
    "app.py": "two jobs, a schedule and an importer",
    "contacts.csv": "a file to import",
    "test_app.py": "tests that run the jobs",
}
_APP = "--app app:app"
_PAYLOAD = """'{"to": "ada@example.com", "subject": "Hello"}'"""
_NEEDS = {"fastapi": "rowlock[web]", "polars": "rowlock[imports]", "pytest": "pytest"}  # by module: what to install


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Write a small application to start from: a job that is retried, a schedule, an importer with a file to "
            "import, and tests. Existing files are never overwritten. Prints what to do next.",
            "rowlock init",
            "rowlock init shop",
        )
    )(init)


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder; created if it does not exist.")] = Path(),
    json: options.Json = False,
) -> int:
    from rowlock.cli.output import Output

    _write(folder)
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    start = [*enter, *_installs(), f"rowlock up {_APP}"]
    use = [
        f"rowlock enqueue email.send --payload {_PAYLOAD} --wait {_APP}",
        f"rowlock import contacts.csv --type contacts --wait {_APP}",
        f"rowlock jobs list {_APP}",
        "python -m pytest",
    ]
    out = Output(json)
    if json:
        out.json({"folder": str(folder), "files": list(FILES), "next": [*start, *use]})
        return 0
    out.fields({str(folder / name): about for name, about in FILES.items()})
    parts = {
        "Run it: workers, pages and the HTTP API, until Ctrl-C": start,
        "Meanwhile, in another terminal": [*enter, *use],
    }
    for title, commands in parts.items():
        out.line("")
        out.line(f"{title}:")
        out.line("")
        for command in commands:
            out.line(f"    {command}")
    return 0


def _installs() -> list[str]:
    """Return the command that installs what the next ones need and is missing here, if anything."""
    missing = [package for module, package in _NEEDS.items() if find_spec(module) is None]
    return [f"pip install {' '.join(map(shlex.quote, missing))}"] if missing else []


def _write(folder: Path) -> None:
    """Write the files, all or none; raises UsageError and changes nothing if one of them exists."""
    existing = [name for name in FILES if os.path.lexists(folder / name)]
    if existing:
        raise UsageError(
            f"there is already {', '.join(str(folder / name) for name in existing)}: nothing was written; "
            "choose another folder with `rowlock init DIR`"
        )
    starter = resources.files("rowlock.cli") / "starter"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            with (folder / name).open("xb") as file:
                file.write((starter / name).read_bytes())
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}") from None

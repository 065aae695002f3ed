"""`rowlock demo files`: sample files to try imports with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.cli.output import Output

ROWS_MAX = 100_000_000


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Write sample files to try things out with.")
    group.command(
        "files",
        help=options.examples(
            "Write sample files for every import type of the reference application: good ones, and in the folder bad "
            "some that each break in one known way. README.txt and truth.json say what should become of each.",
            "rowlock demo files samples",
            "rowlock demo files samples --rows 1000000 --type customers",
            "rowlock demo files samples --rows 100 --seed 7 --force --json",
        ),
    )(files)
    app.add_typer(group, name="demo")


def files(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; it is made where there is none.")],
    rows: Annotated[
        int,
        typer.Option(
            min=1, max=ROWS_MAX, help="Rows of each good file; workbooks have no more than an upload may have."
        ),
    ] = 1_000,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Another seed, other rows; the same, the same.")] = 1,
    type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Only the files of this import type; may be given several times."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that this command did not write, or that were changed since.")
    ] = False,
    json: options.Json = False,
) -> int:
    from rowlock.cli.output import Output
    from rowlock.cli.samples.write import write_samples

    out = Output(json)
    with out.progress(f"writing {folder}", 100) as advance:
        truth = write_samples(folder, rows, seed, type or [], force, advance)
    first, told = next(iter(truth["files"].items()))
    again = f"rowlock import {shlex.quote(str(folder / first))} --type {told['type']} --wait"
    if json:
        out.json({"folder": str(folder), "next": again, **truth})
    else:
        _show(truth["files"], folder, again, out)
    return 0


def _show(files: dict[str, Any], folder: Path, again: str, out: Output) -> None:
    listed = [[name, told["type"], told["words"], f"{told['bytes']:,}"] for name, told in files.items()]
    out.table(("file", "type", "what should become of it", "bytes"), listed, "no files")
    out.line("")
    out.line(f"{folder / 'README.txt'} and {folder / 'truth.json'} say more. To begin with:")
    out.line("")
    out.line(f"    {again}")

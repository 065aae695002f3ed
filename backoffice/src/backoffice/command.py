"""The command `backoffice`: writes sample files for trying imports."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from backoffice.samples.write import SamplesError, write_samples

ROWS_MAX = 100_000_000
_USAGE = 2  # the exit code of an invalid command, as in `rowlock`

app = typer.Typer(name="backoffice", no_args_is_help=True, add_completion=False, help="The reference application.")
demo = typer.Typer(no_args_is_help=True, help="Write sample files for trying imports.")
app.add_typer(demo, name="demo")


@app.callback()
def root() -> None:
    """The reference application of Rowlock. To run it: `ROWLOCK_APP=backoffice:app rowlock up`."""


@demo.command()
def files(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; created if it does not exist.")],
    rows: Annotated[
        int,
        typer.Option(
            min=1, max=ROWS_MAX, help="Rows of each good file; workbooks have at most as many as an upload may have."
        ),
    ] = 1_000,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The same seed writes the same bytes.")] = 1,
    type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Only the files of this import type; can be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that this command did not write, or that were changed since.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Write sample files for every import type of the reference application: good ones, and in the folder `bad` files
    with one known error each. README.txt and truth.json have the expected result of each file.

    \b
    Examples:
      backoffice demo files samples
      backoffice demo files samples --rows 1000000 --type customers
      backoffice demo files samples --rows 100 --seed 7 --force --json
    """
    try:
        with _progress(f"writing {folder}", shown=not as_json and sys.stderr.isatty()) as advance:
            truth = write_samples(folder, rows, seed, type or [], force, advance)
    except SamplesError as error:
        typer.echo(f"error: {error}", err=True)
        if as_json:
            _print({"code": "usage", "message": str(error)})
        raise typer.Exit(_USAGE) from None
    first, told = next(iter(truth["files"].items()))
    again = f"rowlock import {shlex.quote(str(folder / first))} --type {told['type']} --wait --app backoffice:app"
    if as_json:
        _print({"folder": str(folder), "next": again, **truth})
    else:
        _show(truth["files"], folder, again)


@contextmanager
def _progress(label: str, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of further percent; shows a progress line if `shown`."""
    if not shown:
        yield lambda _: None
        return
    with typer.progressbar(length=100, label=label, file=sys.stderr) as bar:
        yield bar.update


def _show(files: dict[str, Any], folder: Path, again: str) -> None:
    rows = [[name, told["type"], told["words"], f"{told['bytes']:,} bytes"] for name, told in files.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo(f"\n{folder / 'README.txt'} and {folder / 'truth.json'} describe them. While the application runs, try:")
    typer.echo(f"\n    {again}")


def _print(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point: run one command and exit with its code."""
    app(argv)

"""Output of commands: tables and a progress line for people, JSON for programs, notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]

_PIPE_COLUMNS = 1_000  # nothing is wrapped in a pipe: one job, one line
_CELL_MAX = 200
_COLOURS = {
    "queued": "cyan",
    "processing": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "QUEUED": "cyan",
    "RUNNING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "magenta",
    "ok": "green",
    "warning": "yellow",
    "error": "red",
    "paused": "yellow",
}


class Output:
    """The output of one command, as text or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: Any) -> None:
        """Print one JSON value, a schema or plain data: indented on a terminal, otherwise on one line."""
        from pydantic_core import to_json

        indent = 2 if sys.stdout.isatty() else None
        sys.stdout.write(to_json(value, indent=indent).decode() + "\n")

    def tell(self, value: Any, text: str) -> None:
        """Print a JSON value for programs, or a line for people."""
        self.json(value) if self.as_json else self.line(text)

    def line(self, text: str) -> None:
        """Print one line; control characters become spaces, so that user data cannot harm a terminal."""
        sys.stdout.write(printable(text) + "\n")

    def flush(self) -> None:
        """Flush the output, so that it can be read while the command runs."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a note to standard error."""
        sys.stderr.write(f"note: {printable(text)}\n")

    def error(self, text: str) -> None:
        """Print an error in a part of the work to standard error; the answer covers the rest."""
        sys.stderr.write(f"error: {printable(text)}\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
        """Print a table with coloured status words, or `empty` if it has no rows."""
        if not rows:
            self.line(empty)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column == "id")
        for row in rows:
            words = [printable("" if cell is None else _text(cell), _CELL_MAX) for cell in row]
            table.add_row(*(Text(word, style=_COLOURS.get(word, "")) for word in words))
        console(sys.stdout).print(table)

    def fields(self, values: Mapping[str, object]) -> None:
        """Print names and values, one per line, without those that are None."""
        shown = {name: value for name, value in values.items() if value is not None}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            self.line(f"{name:<{width}}  {_text(value)}")

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """Show a progress line, only on a terminal; yields a function to call with the number of newly done units."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.progress import Progress

        with Progress(console=console(sys.stderr), transient=True) as progress:
            task = progress.add_task(label, total=total)
            yield lambda count: progress.advance(task, count)


def console(stream: Any) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else _PIPE_COLUMNS
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def printable(text: str, at_most: int | None = None) -> str:
    """Return text that moves no cursor and breaks no table: control characters become spaces."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    if at_most is not None and len(clean) > at_most:
        return clean[: at_most - 1] + "…"
    return clean


def _text(value: object) -> str:
    if isinstance(value, datetime):
        from rowlock.management.schemas.base import iso

        return iso(value)
    return str(value)


def ago(moment: datetime) -> str:
    """Return a time relative to now, in one unit: 5 min ago, in 3 h."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    words = duration(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

"""What commands print: tables and a progress line for people, JSON for programs, notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]

_PIPE_COLUMNS = 1_000  # into a pipe nothing is wrapped: one job, one line
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
    """Where one command prints, in the form that its caller asked for."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: Any) -> None:
        """One JSON value: indented on a terminal, else on one line."""
        import orjson

        option = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
        sys.stdout.write(orjson.dumps(value, option=option).decode() + "\n")

    def tell(self, value: Any, text: str) -> None:
        """A JSON value for programs, a line for people."""
        self.json(value) if self.as_json else self.line(text)

    def line(self, text: str) -> None:
        """One line for people; data of users is made harmless to terminals."""
        sys.stdout.write(printable(text) + "\n")

    def flush(self) -> None:
        """Let what was printed be read while the command goes on."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """What a person should know beside the answer."""
        sys.stderr.write(f"note: {printable(text)}\n")

    def error(self, text: str) -> None:
        """What went wrong with a part of the work, where the answer tells the rest."""
        sys.stderr.write(f"error: {printable(text)}\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
        """A table; words of state are coloured."""
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
            words = [printable("" if cell is None else str(cell), _CELL_MAX) for cell in row]
            table.add_row(*(Text(word, style=_COLOURS.get(word, "")) for word in words))
        console(sys.stdout).print(table)

    def fields(self, values: Mapping[str, object]) -> None:
        """Names and values of one thing, those without a value left out."""
        shown = {name: value for name, value in values.items() if value is not None}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            self.line(f"{name:<{width}}  {value}")

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Advance]:
        """A progress line on a terminal; nothing elsewhere. Call what it gives with how many more are done."""
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
    """Text that moves no cursor and breaks no table: control characters become spaces."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    if at_most is not None and len(clean) > at_most:
        return clean[: at_most - 1] + "…"
    return clean


def ago(moment: str) -> str:
    """How long ago, or in how long, in one unit."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    words = duration(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

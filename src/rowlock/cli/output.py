"""What commands print: tables and a progress line for people, JSON for programs, notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from rowlock.observe.redact import Redactor
    from rowlock.storage.records import JobRecord

Advance = Callable[[int], None]

_PIPE_COLUMNS = 1_000  # into a pipe nothing is wrapped: one job, one line
_CELL_MAX = 200
_COLOURS = {
    "queued": "cyan",
    "processing": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
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

    def line(self, text: str) -> None:
        """One line for people; data of users is made harmless to terminals."""
        sys.stdout.write(printable(text) + "\n")

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


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, with milliseconds and Z."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(moment: datetime | None) -> str:
    """How long ago, or in how long, in one unit."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    words = duration(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def job_json(job: JobRecord, redact: Redactor | None) -> dict[str, Any]:
    """A job as the HTTP API answers it; without its secrets unless `redact` is None."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "status": job.status.value,
        "payload": _data(job.payload, redact),
        "priority": job.priority,
        "attempts": job.attempts,
        "maxAttempts": job.max_attempts,
        "deaths": job.deaths,
        "lease": job.lease,
        "visibilityTimeoutMs": job.visibility_timeout_ms,
        "availableAt": iso(job.available_at),
        "lockedAt": iso(job.locked_at),
        "lockOwner": job.lock_owner,
        "createdAt": iso(job.created_at),
        "startedAt": iso(job.started_at),
        "finishedAt": iso(job.finished_at),
        "updatedAt": iso(job.updated_at),
        "progress": job.progress,
        "message": _text(job.message, redact),
        "cancelRequested": job.cancel_requested,
        "result": _data(job.result, redact),
        "error": _text(job.error, redact),
        "companyId": job.company_id,
        "limitKey": job.limit_key,
        "uniqueKey": job.unique_key,
        "trace": job.trace,
    }


def _data(text: str | None, redact: Redactor | None) -> Any:
    from rowlock.jobs.payload import loads

    value = None if text is None else loads(text)
    return value if redact is None else redact.value(value)


def _text(text: str | None, redact: Redactor | None) -> str | None:
    return text if text is None or redact is None else redact.text(text)


def job_rows(jobs: Sequence[JobRecord], redact: Redactor) -> list[list[object]]:
    """Jobs as rows under JOB_COLUMNS."""
    return [
        [job.id, job.type, job.queue, job.status.value, f"{job.attempts}/{job.max_attempts}", ago(_last(job)), note]
        for job in jobs
        for note in [_text(job.error if job.status.final else job.message, redact)]
    ]


def _last(job: JobRecord) -> datetime:
    from rowlock.storage.records import Status

    return job.available_at if job.status is Status.QUEUED else job.updated_at


JOB_COLUMNS = ("id", "type", "queue", "status", "attempts", "when", "note")

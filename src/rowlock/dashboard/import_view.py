"""What the page of an import shows: progress, the outcome of its rows, why it failed, and the possible actions.

uploaded ─▶ reading ─▶ checking and loading, chunk by chunk ─▶ done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rowlock.dashboard.filters import sentence, size
from rowlock.dashboard.import_messages import for_people, may_go_on
from rowlock.management.schemas.imports import ImportSchema
from rowlock.storage.imports import ATTEMPT_FAILED

_KINDS = (
    ("inserted", "new"),
    ("updated", "changed"),
    ("unchanged", "same"),
    ("duplicates", "again"),
    ("failed", "bad"),
)
_OVER = ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Step:
    """One phase of an import; its state is done, now, later or stopped."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """Rows with the same outcome, as a part of a bar of width 100."""

    name: str
    kind: str
    count: int
    start: float
    width: float


def steps(found: ImportSchema) -> list[Step]:
    """Return the phases with their states."""
    chunks, done, status = found.total_chunks, found.completed_chunks, found.status
    read = found.meta_json.get("rows")
    loading = "Checking" if found.dry_run else "Checking and loading"
    at = 3 if status == "SUCCEEDED" else 2 if chunks is not None else 1 if found.started_at else 0
    texts = [
        size(found.size_bytes),
        "" if read is None else f"{read:,} rows",
        "" if chunks is None else f"{done:,} of {chunks:,} chunk{'s' if chunks != 1 else ''}",
        _end(found),
    ]
    if status == "QUEUED":
        texts[1] = "starts as soon as a worker is free"
    elif status == "RUNNING" and at == 1:
        texts[1] = (found.message or "").partition(": ")[2]
    if status == "RUNNING" and (said := found.message or "").startswith(ATTEMPT_FAILED):
        texts[at] = f"{texts[at]}; {said}" if texts[at] and at == 2 else said
    names = ("Uploaded", "Reading the file", loading, "Done")
    stopped = status in ("FAILED", "CANCELLED")
    at = max(at, 1)
    states = ["done" if n < at or status == "SUCCEEDED" else "later" if n > at else "now" for n in range(4)]
    if stopped:
        states[at] = "stopped"
    return [Step(*each) for each in zip(names, states, texts, strict=True)]


def _end(found: ImportSchema) -> str:
    begun, ended = found.created_at, found.finished_at
    if found.status != "SUCCEEDED" or ended is None:
        return ""
    return f"after {max(1, round((ended - begun).total_seconds())):,} s"


def headline(found: ImportSchema) -> tuple[str, str]:
    """Return the state or result in one sentence, and its colour."""
    rows = found.summary
    total, failed = rows.total_rows, rows.failed
    good = total - failed
    match found.status:
        case "QUEUED" | "RUNNING":
            return ("Your file is being checked." if found.dry_run else "Your file is being imported."), ""
        case "CANCELLED":
            return "This import was cancelled." + _stays(found), "bad"
        case "FAILED":
            error = found.error_json or {}
            return sentence(for_people(error.get("code", ""), error.get("message", "")).title), "bad"
    if total and not good and not (found.result_json or {}).get("wouldFail"):
        can = "can be" if found.dry_run else "was"
        which = "the only one has errors" if total == 1 else f"all {total:,} have errors"
        return f"No row {can} imported: {which}.", "bad"
    there = bool(good) and rows.inserted + rows.updated == 0  # all good rows were in the table before
    if not found.dry_run:
        if there:
            return (
                f"{_rows(good) if failed else _every(good)} {_were(good)} already in the table{_also(failed)}.",
                "bad" if failed else "good",
            )
        if not failed:
            return f"{_every(total)} {_were(total)} imported.", "good"
        return f"{_rows(good)} {_were(good)} imported, {failed:,} {_were(failed)} not.", "bad"
    if (found.result_json or {}).get("wouldFail"):
        return f"Nothing would be imported: {failed:,} of {_rows(total)} {_have(failed)} errors.", "bad"
    if failed:
        return f"{good:,} of {_rows(total)} can be imported, {failed:,} {_have(failed)} errors.", "bad"
    if there:
        return (
            f"{_every(total)} {'is' if total == 1 else 'are'} already in the table: an import would change nothing.",
            "good",
        )
    return f"{_every(total)} can be imported.", "good"


def _every(count: int) -> str:
    return "The only row" if count == 1 else f"All {_rows(count)}"


def _also(failed: int) -> str:
    return f", {failed:,} {_were(failed)} not imported" if failed else ""


def _stays(found: ImportSchema) -> str:
    rows = found.summary
    kept = rows.inserted + rows.updated
    if not kept or found.dry_run:
        return ""
    return f" {_rows(kept)} that {_were(kept)} loaded before {'remains' if kept == 1 else 'remain'} in the table."


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def parts(found: ImportSchema) -> list[Part]:
    """Return the rows by outcome as parts of one bar; while the import runs, they may not fill it."""
    rows, would = found.summary, found.dry_run
    names = {
        "inserted": "would be new" if would else "new",
        "updated": "would change" if would else "changed",
        "unchanged": "unchanged",
        "duplicates": "duplicates",
        "failed": "with errors",
    }
    starts = [0]
    for name, _ in _KINDS:
        starts.append(starts[-1] + getattr(rows, name))
    whole = max(starts[-1], 1) if found.finished_at else max(starts[-1], found.meta_json.get("rows") or 1)
    return [
        Part(names[name], kind, end - start, 100 * start / whole, 100 * (end - start) / whole)
        for (name, kind), (start, end) in zip(_KINDS, pairwise(starts), strict=True)
    ]


def read_as(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how the file was read: sheet, encoding and delimiter, if known."""
    about = meta.get("file") or {}
    names = {"sheet": "Sheet", "encoding": "Encoding", "delimiter": "Delimiter"}
    return [(label, str(about[name])) for name, label in names.items() if about.get(name)]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an import failed, with the missing columns if that is the reason."""

    title: str
    text: str
    advice: str
    missing: Sequence[tuple[str, Sequence[str]]]  # a column, and the nearest names in the file
    found: Sequence[str]
    row: int | None


def failure(found: ImportSchema) -> Failure | None:
    """Return why the import failed, or None if it did not."""
    error = found.error_json
    if found.status != "FAILED" or not isinstance(error, Mapping):
        return None
    plain = for_people(str(error.get("code", "")), str(error.get("message", "")))
    nearest = error.get("nearest") or {}
    missing = [(name, nearest.get(name, ())) for name in error.get("missing") or ()]
    text = plain.text
    if missing:  # the table of columns shows the rest
        text = f"The file has no column for {', '.join(name for name, _ in missing)}."
    return Failure(plain.title, text, plain.advice, missing, error.get("found") or (), error.get("row"))


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions that an import's state allows."""

    cancel: bool
    resume: bool
    import_now: bool


def actions(found: ImportSchema, kept: bool) -> Actions:
    """Return the possible actions. Resuming, and importing after a dry run, need the kept file (`kept`)."""
    code = (found.error_json or {}).get("code", "")
    stopped = found.status == "CANCELLED" or (found.status == "FAILED" and may_go_on(code))
    rows, result = found.summary, found.result_json or {}
    fine = found.status == "SUCCEEDED" and found.dry_run and not result.get("wouldFail")
    return Actions(
        cancel=found.status not in _OVER,
        resume=stopped and kept,
        import_now=fine and kept and rows.total_rows > rows.failed,
    )

"""An import as its page shows it: how far it is, what became of the rows, and what is wrong with which cell.

uploaded ─▶ reading ─▶ checking and loading, chunk by chunk ─▶ done
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from rowlock.imports.headers import letter
from rowlock.shapes import Shape
from rowlock.web.pages.import_words import about_code, may_go_on, told
from rowlock.web.pages.words import instant, sentence, size

_WIDE = 10  # columns: a wider sheet is shown by its columns with errors
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
    """One phase of an import: done, now, later, or where it stopped."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """Rows with the same fate, as a part of a bar of the width 100."""

    name: str
    kind: str
    count: int
    start: float
    width: float


def steps(found: Shape) -> list[Step]:
    """The phases, and how far each is."""
    chunks, done, status = found["totalChunks"], found["completedChunks"], found["status"]
    read = found["metaJson"].get("rows")
    loading = "Checking" if found["dryRun"] else "Checking and loading"
    at = 3 if status == "SUCCEEDED" else 2 if chunks is not None else 1 if found["startedAt"] else 0
    texts = [
        size(found["sizeBytes"]),
        "" if read is None else f"{read:,} rows",
        "" if chunks is None else f"{done:,} of {chunks:,} chunk{'s' if chunks != 1 else ''}",
        _end(found),
    ]
    if status == "QUEUED":
        texts[1] = "starts as soon as a worker is free"
    elif status == "RUNNING" and at == 1:
        texts[1] = (found["message"] or "").partition(": ")[2]
    names = ("Uploaded", "Reading the file", loading, "Done")
    stopped = status in ("FAILED", "CANCELLED")
    at = max(at, 1)
    states = ["done" if n < at or status == "SUCCEEDED" else "later" if n > at else "now" for n in range(4)]
    if stopped:
        states[at] = "stopped"
    return [Step(*each) for each in zip(names, states, texts, strict=True)]


def _end(found: Shape) -> str:
    begun, ended = instant(found["createdAt"]), instant(found["finishedAt"])
    if found["status"] != "SUCCEEDED" or begun is None or ended is None:
        return ""
    return f"after {max(1, round((ended - begun).total_seconds())):,} s"


def headline(found: Shape) -> tuple[str, str]:
    """What became of it, in one sentence and its colour."""
    rows = found["summary"]
    total, failed = rows["totalRows"], rows["failed"]
    good = total - failed
    match found["status"]:
        case "QUEUED" | "RUNNING":
            return ("Your file is being checked." if found["dryRun"] else "Your file is being imported."), ""
        case "CANCELLED":
            return "This import was cancelled." + _stays(found), "bad"
        case "FAILED":
            error = found["errorJson"] or {}
            return sentence(told(error.get("code", ""), error.get("message", "")).title), "bad"
    if not found["dryRun"]:
        if not failed:
            return f"All {_rows(total)} {_were(total)} imported.", "good"
        return f"{_rows(good)} {_were(good)} imported, {failed:,} {_were(failed)} not.", "bad"
    if (found["resultJson"] or {}).get("wouldFail"):
        return f"Nothing would be imported: {failed:,} of {_rows(total)} {_have(failed)} errors.", "bad"
    if failed:
        return f"{good:,} of {_rows(total)} can be imported, {failed:,} {_have(failed)} errors.", "bad"
    return f"All {_rows(total)} can be imported.", "good"


def _stays(found: Shape) -> str:
    rows = found["summary"]
    kept = rows["inserted"] + rows["updated"]
    if not kept or found["dryRun"]:
        return ""
    return f" {_rows(kept)} that {_were(kept)} loaded before {'stays' if kept == 1 else 'stay'}."


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def parts(found: Shape) -> list[Part]:
    """Where the rows went, as parts of one bar: they add up to all."""
    rows, would = found["summary"], found["dryRun"]
    names = {
        "inserted": "would be new" if would else "new",
        "updated": "would change" if would else "changed",
        "unchanged": "the same already",
        "duplicates": "again further down",
        "failed": "with errors",
    }
    starts = [0]
    for name, _ in _KINDS:
        starts.append(starts[-1] + rows[name])
    whole = max(starts[-1], 1)
    return [
        Part(names[name], kind, end - start, 100 * start / whole, 100 * (end - start) / whole)
        for (name, kind), (start, end) in zip(_KINDS, pairwise(starts), strict=True)
    ]


def read_as(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the file was read, for whoever wonders about its letters or its sheet."""
    about = meta.get("file") or {}
    names = {"sheet": "Sheet", "encoding": "Encoding", "delimiter": "Cells are separated by"}
    return [(label, str(about[name])) for name, label in names.items() if about.get(name)]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an import failed, with the columns where it is about them."""

    title: str
    text: str
    advice: str
    missing: Sequence[tuple[str, Sequence[str]]]  # a column, and those of the file that may be meant
    found: Sequence[str]
    row: int | None


def failure(found: Shape) -> Failure | None:
    """Why it failed; None where it did not."""
    error = found["errorJson"]
    if found["status"] != "FAILED" or not isinstance(error, Mapping):
        return None
    plain = told(str(error.get("code", "")), str(error.get("message", "")))
    nearest = error.get("nearest") or {}
    missing = [(name, nearest.get(name, ())) for name in error.get("missing") or ()]
    text = plain.text
    if missing:  # the table of columns says the rest
        text = f"The file has no column for {', '.join(name for name, _ in missing)}."
    return Failure(plain.title, text, plain.advice, missing, error.get("found") or (), error.get("row"))


@dataclass(frozen=True, slots=True)
class Actions:
    """What may be done with an import as it stands."""

    cancel: bool
    resume: bool
    import_now: bool


def actions(found: Shape, now: datetime, kept_days: float) -> Actions:
    """What makes sense: to go on only where the file is not to blame, to import what a dry run found good."""
    code = (found["errorJson"] or {}).get("code", "")
    ended = instant(found["finishedAt"])
    kept = ended is not None and now - ended < timedelta(days=kept_days)
    stopped = found["status"] == "CANCELLED" or (found["status"] == "FAILED" and may_go_on(code))
    rows, result = found["summary"], found["resultJson"] or {}
    fine = found["status"] == "SUCCEEDED" and found["dryRun"] and not result.get("wouldFail")
    return Actions(
        cancel=found["status"] not in _OVER,
        resume=stopped and kept,
        import_now=fine and kept and rows["totalRows"] > rows["failed"],
    )


# -- errors ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Errors of one column and kind."""

    column: str | None
    reason: str
    count: int
    row: int | None  # the first, if it is at hand
    value: str | None


def groups(found: Shape) -> list[Group]:
    """The errors by column and reason, the most frequent first, each with an example where one is at hand."""
    first: dict[tuple[str | None, str], Shape] = {}
    for error in found["summary"]["errors"]:
        first.setdefault((error["column"], error["code"]), error)
    made = []
    for group in found["summary"]["errorGroups"]:
        example = first.get((group["column"], group["code"])) or {}
        reason = sentence(example.get("reason") or about_code(group["code"]))
        made.append(Group(group["column"], reason, group["count"], example.get("row"), example.get("value")))
    return made


@dataclass(frozen=True, slots=True)
class Column:
    letter: str
    name: str
    bad: bool  # an error of this page is in it


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    cells: Sequence[Cell]
    reasons: Sequence[str]  # of the row as a whole, or of a column that is not shown


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows with errors in the columns of the file."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    hidden: int  # columns without errors that are left out


def sheet(page: Shape, *, every_column: bool | None) -> Sheet:
    """Rows with errors as the sheet has them, the bad cells with their reasons.

    Of a wide sheet, unless all columns are asked for, those with errors and the first one.
    """
    names: list[str] = page["columns"]
    bad = {error["column"] for row in page["rows"] for error in row["errors"]}
    wide = len(names) > _WIDE if every_column is None else not every_column
    shown = [index for index, name in enumerate(names) if not wide or index == 0 or name in bad]
    columns = [Column(letter(index), names[index], names[index] in bad) for index in shown]
    return Sheet(columns, [_row(row, names, shown) for row in page["rows"]], len(names) - len(shown))


def _row(row: Shape, names: Sequence[str], shown: Sequence[int]) -> Row:
    reasons: dict[int, list[str]] = {}
    loose: list[str] = []
    for error in row["errors"]:
        if error["column"] in names:
            reasons.setdefault(names.index(error["column"]), []).append(error["reason"])
        else:
            loose.append(error["reason"] if error["column"] is None else f"{error['column']}: {error['reason']}")
    cells = row["cells"]
    made = [
        Cell(cells[index] if index < len(cells) else "", tuple(dict.fromkeys(reasons.get(index, ()))))
        for index in shown
    ]
    return Row(row["row"], made, tuple(dict.fromkeys(loose)))


# -- a dry run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """Some rows before and after, in the columns of the table."""

    columns: Sequence[str]
    rows: Sequence[ChangedRow]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    number: int
    new: bool
    cells: Sequence[tuple[str, str | None]]  # what it would be; what it was, where that is something else


def changes(found: Shape) -> Changes:
    """The sample of a dry run; columns that say nothing are left out: empty ones, and those that are the same in all
    rows and not in the file, such as the company."""
    sample = (found["resultJson"] or {}).get("sample") or ()
    names = dict.fromkeys(name for change in sample for name in change["after"])
    in_file = found["metaJson"].get("columns") or {}
    told = [name for name in names if _tells(sample, name, name in in_file)]
    return Changes(told, [_changed(change, told) for change in sample])


def _tells(sample: Sequence[Mapping[str, Any]], name: str, in_file: bool) -> bool:
    values = {_text(side.get(name)) for change in sample for side in (change["before"] or {}, change["after"]) if side}
    return len(values) > 1 or (in_file and values != {""})


def _changed(change: Mapping[str, Any], names: Iterable[str]) -> ChangedRow:
    before, after = change["before"], change["after"]
    cells = []
    for name in names:
        is_now = _text(after.get(name))
        was = None if before is None else _text(before.get(name))
        cells.append((is_now, None if was == is_now else was))
    return ChangedRow(change["row"], before is None, cells)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)

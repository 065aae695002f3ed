"""Lists the sheets of a workbook in the order of its tabs, and finds their parts."""

from __future__ import annotations

import posixpath
from collections.abc import Generator
from dataclasses import dataclass, field
from urllib.parse import unquote

from rowlock.errors import FileRefused
from rowlock.imports.read.workbook.errors import damaged, too_large
from rowlock.imports.read.workbook.guarded import parse
from rowlock.imports.read.workbook.package import Package

SMALL_PART_BYTES_MAX = 64 << 20
SHEETS_MAX = 10_000
NAMES_SHOWN = 20
TRUE = frozenset({"1", "true", "on"})


@dataclass(frozen=True, slots=True)
class Sheet:
    """A tab of the workbook that holds cells."""

    name: str
    part: str
    hidden: bool


@dataclass(slots=True)
class Workbook:
    """The sheets and other parts of a workbook."""

    sheets: list[Sheet] = field(default_factory=list)
    shared_strings: str | None = None
    styles: str | None = None
    since_1904: bool = False
    other_sheets: int = 0  # charts, macros and dialogs


@dataclass(frozen=True, slots=True)
class _Relation:
    id: str
    kind: str  # the last word of its type; the same in both OOXML dialects
    target: str


def small_part(package: Package, part: str) -> Generator[bytes, None, None]:
    """Return the blocks of a part that is read as a whole; raises FileRefused if it is too large."""
    if package.size(part) > SMALL_PART_BYTES_MAX:
        raise too_large(f"its part {part[:80]} has more than {SMALL_PART_BYTES_MAX >> 20} MB")
    return package.blocks(part)


def read_workbook(package: Package) -> Workbook:
    """Find sheets and parts by their relationships, or by their usual names if these are missing."""
    part = next((r.target for r in _relations(package, "") if r.kind == "officeDocument"), "xl/workbook.xml")
    if part not in package and "xl/workbook.xml" in package:
        part = "xl/workbook.xml"
    relations = _relations(package, part)
    book = Workbook()
    listed: list[tuple[str, str, bool]] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "sheet":
            if len(listed) >= SHEETS_MAX:
                raise damaged(f"it has more than {SHEETS_MAX} sheets")
            relation = next((value for key, value in attributes.items() if key.endswith(":id")), "")
            hidden = attributes.get("state", "visible") in ("hidden", "veryHidden")
            listed.append((attributes.get("name", ""), relation, hidden))
        elif name == "workbookPr":
            book.since_1904 = attributes.get("date1904", "0") in TRUE

    parse(part, small_part(package, part), start, _nothing)
    targets = {relation.id: relation for relation in relations}
    for name, relation_id, hidden in listed:
        relation = targets.get(relation_id)
        if relation is not None and relation.kind == "worksheet":
            book.sheets.append(Sheet(name, relation.target, hidden))
        elif relation is not None:
            book.other_sheets += 1
    folder = posixpath.dirname(part)
    book.shared_strings = _other(package, relations, "sharedStrings", posixpath.join(folder, "sharedStrings.xml"))
    book.styles = _other(package, relations, "styles", posixpath.join(folder, "styles.xml"))
    return book


def choose_sheet(book: Workbook, wanted: str | None) -> Sheet:
    """Return the sheet of that name (default: the first visible one); raises FileRefused with the existing names."""
    if not book.sheets and book.other_sheets:
        raise FileRefused(
            "The workbook has no sheet with cells, only charts or macros. Upload the workbook that has the table.",
            code="empty_file",
        )
    if not book.sheets:
        raise damaged("it has no worksheet")
    if wanted is None:
        return next((sheet for sheet in book.sheets if not sheet.hidden), book.sheets[0])
    for sheet in book.sheets:
        if sheet.name == wanted:
            return sheet
    for sheet in book.sheets:
        if _folded(sheet.name) == _folded(wanted):
            return sheet
    names = [sheet.name for sheet in book.sheets]
    shown = ", ".join(f'"{name[:40]}"' for name in names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    raise FileRefused(
        f'The workbook has no sheet "{wanted[:80]}". It has: {shown}. Rename the sheet, or choose another one.',
        code="sheet_not_found",
        more={"sheets": [name[:80] for name in names[:NAMES_SHOWN]]},
    )


def _folded(name: str) -> str:
    return " ".join(name.split()).casefold()


def _relations(package: Package, part: str) -> list[_Relation]:
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in package:
        return []
    found: list[_Relation] = []

    def start(element: str, attributes: dict[str, str]) -> None:
        if element != "Relationship" or attributes.get("TargetMode") == "External":
            return
        target = unquote(attributes.get("Target", "")).replace("\\", "/")
        whole = target if target.startswith("/") else posixpath.join("/", folder, target)
        kind = attributes.get("Type", "").rsplit("/", 1)[-1]
        found.append(_Relation(attributes.get("Id", ""), kind, posixpath.normpath(whole).lstrip("/")))

    parse(path, small_part(package, path), start, _nothing)
    return found


def _other(package: Package, relations: list[_Relation], kind: str, usual: str) -> str | None:
    for relation in relations:
        if relation.kind == kind:
            return relation.target
    return usual if usual in package else None


def _nothing(_: str) -> None:
    """Ignore the end of an element."""

"""Writes workbooks (.xlsx) row by row in constant memory; the same rows give the same bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import BinaryIO
from xml.sax.saxutils import escape

_BLOCK_ROWS = 1_000
_EPOCH = date(1899, 12, 30).toordinal()
_MADE_AT = (2026, 1, 1, 0, 0, 0)
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_DAY = ' s="1"'  # the style of a date


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula with its value when the workbook was saved; None if it was never computed."""

    text: str
    value: str | None = None  # a number, or an error such as #DIV/0!


Cell = str | int | Decimal | bool | date | Formula | None


@dataclass(frozen=True, slots=True)
class Sheet:
    name: str
    rows: Iterable[Sequence[Cell]]


def write_workbook(to: BinaryIO, sheets: Sequence[Sheet]) -> None:
    """Write a workbook with these sheets; a row without cells is a blank one."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, text in _parts(sheets):
            archive.writestr(_part(name), text)
        for number, sheet in enumerate(sheets, 1):
            with archive.open(_part(f"xl/worksheets/sheet{number}.xml"), "w") as part:
                part.write(f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>'.encode())
                for block in _blocks(sheet.rows):
                    part.write(block.encode())
                part.write(b"</sheetData></worksheet>")


def _blocks(rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    numbered = enumerate(rows, 1)
    while block := [_row(number, cells) for number, cells in islice(numbered, _BLOCK_ROWS)]:
        yield "".join(block)


def _row(number: int, cells: Sequence[Cell]) -> str:
    made = "".join(
        _cell(f"{letter(place)}{number}", cell) for place, cell in enumerate(cells) if cell is not None and cell != ""
    )
    return f'<row r="{number}">{made}</row>' if made else ""


def _cell(at: str, cell: Cell) -> str:
    match cell:
        case str():
            keep = ' xml:space="preserve"' if cell != cell.strip() else ""
            return f'<c r="{at}" t="inlineStr"><is><t{keep}>{escape(cell)}</t></is></c>'
        case bool():
            return f'<c r="{at}" t="b"><v>{int(cell)}</v></c>'
        case date():
            return f'<c r="{at}"{_DAY}><v>{cell.toordinal() - _EPOCH}</v></c>'
        case Formula():
            kind = ' t="e"' if cell.value is not None and cell.value.startswith("#") else ""
            value = "" if cell.value is None else f"<v>{escape(cell.value)}</v>"
            return f'<c r="{at}"{kind}><f>{escape(cell.text)}</f>{value}</c>'
    return f'<c r="{at}"><v>{cell}</v></c>'


def letter(place: int) -> str:
    """Return the name of a column; the first is A."""
    assert 0 <= place < 26, "the sample files have few columns"
    return chr(ord("A") + place)


def _part(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _MADE_AT)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _parts(sheets: Sequence[Sheet]) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of all parts of a workbook except the sheets themselves."""
    numbers = range(1, len(sheets) + 1)
    types = "".join(
        f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_KIND}.worksheet+xml"/>'
        for number in numbers
    )
    yield (
        "[Content_Types].xml",
        (
            f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
            f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
            f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>{types}</Types>'
        ),
    )
    yield "_rels/.rels", _relations([("officeDocument", "xl/workbook.xml")])
    named = "".join(
        f'<sheet name="{escape(sheet.name)}" sheetId="{number}" r:id="rId{number}"/>'
        for number, sheet in zip(numbers, sheets, strict=True)
    )
    yield (
        "xl/workbook.xml",
        f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{named}</sheets></workbook>',
    )
    targets = [("worksheet", f"worksheets/sheet{number}.xml") for number in numbers]
    yield "xl/_rels/workbook.xml.rels", _relations([*targets, ("styles", "styles.xml")])
    yield (
        "xl/styles.xml",
        (
            f'{_HEAD}<styleSheet xmlns="{_MAIN}"><fonts count="1"><font/></fonts>'
            '<fills count="2"><fill><patternFill patternType="none"/></fill>'
            '<fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border/></borders>'
            '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
            '<cellXfs count="2"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
            '<xf numFmtId="14" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>'
            '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
        ),
    )


def _relations(targets: Sequence[tuple[str, str]]) -> str:
    made = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">{made}</Relationships>'


_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

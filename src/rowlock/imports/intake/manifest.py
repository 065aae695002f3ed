"""The manifest: maps file names to import types and sheets.

{
  "Accounts-Payable.xlsx": {"type": "ap", "sheetName": "AP Data"},
  "customers-*.csv": {"type": "customers"}
}
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rowlock.errors import SettingsError

_BYTES_MAX = 1_048_576
_FIELDS = ("type", "sheetName")


@dataclass(frozen=True, slots=True)
class Entry:
    """The import type and sheet for a file name or a pattern of names."""

    name: str
    type: str
    sheet: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    file: str
    entries: Mapping[str, Entry]

    def entry(self, file_name: str) -> Entry | None:
        """Return the entry with exactly this name, else the first pattern that matches (ignoring case), else None."""
        name = _plain(file_name)
        if name in self.entries:
            return self.entries[name]
        low = name.casefold()
        return next((entry for key, entry in self.entries.items() if fnmatchcase(low, key.casefold())), None)


def load(path: str) -> Manifest:
    """Read the manifest; returns an empty one if the file is missing.

    Raises SettingsError that names the file and, for wrong content, the line and entry.
    """
    file = Path(path).name
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return Manifest(file, {})
    except OSError as error:
        raise SettingsError(f"the import manifest {file} cannot be read: {error.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise SettingsError(f"the import manifest {file} has more than {_BYTES_MAX:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(file, data[: error.start].count(b"\n") + 1, "it is not UTF-8") from None
    return Manifest(file, _entries(file, text))


def _entries(file: str, text: str) -> dict[str, Entry]:
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise _wrong(file, error.lineno, f"it is not JSON: {error.msg}") from None
    except RecursionError:
        raise _wrong(file, 1, "it is nested too deeply") from None
    if not isinstance(pairs, _Pairs):
        raise _wrong(file, 1, 'it must be an object such as {"customers.csv": {"type": "customers"}}')
    entries: dict[str, Entry] = {}
    for name, given in pairs:
        line = _line(text, name, 1 if _plain(name) not in entries else 2)
        if _plain(name) in entries:
            raise _wrong(file, line, "it occurs twice", name)
        entries[_plain(name)] = _entry(file, line, name, given)
    return entries


def _entry(file: str, line: int, name: str, given: Any) -> Entry:
    if not isinstance(given, _Pairs):
        raise _wrong(file, line, 'it must be an object with "type" and, for a workbook, optionally "sheetName"', name)
    fields = dict(given)
    strange = [field for field in fields if field not in _FIELDS]
    if strange:
        raise _wrong(file, line, f"{strange[0]!r} is unknown; known: {', '.join(_FIELDS)}", name)
    if not isinstance(fields.get("type"), str) or not fields["type"]:
        raise _wrong(file, line, '"type" must be the name of an import type', name)
    sheet = fields.get("sheetName")
    if sheet is not None and (not isinstance(sheet, str) or not sheet):
        raise _wrong(file, line, '"sheetName" must be the name of a sheet', name)
    return Entry(name, fields["type"], sheet)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object that keeps duplicate names."""


def _plain(name: str) -> str:
    """Normalise a name to composed letters: some systems decompose them."""
    return unicodedata.normalize("NFC", name)


def _line(text: str, name: str, number: int) -> int:
    """Return the line of the `number`-th entry of this name; 1 if it is not found."""
    for found in re.finditer(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", text):
        number -= 1
        if number == 0:
            return text.count("\n", 0, found.start()) + 1
    return 1


def _wrong(file: str, line: int, reason: str, name: str | None = None) -> SettingsError:
    entry = "" if name is None else f", entry {name!r}"
    return SettingsError(f"the import manifest {file}, line {line}{entry}: {reason}")

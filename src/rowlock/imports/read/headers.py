"""Matches the header of a file to the fields of a row: exact names first, then other spellings.

    exact text  ->  same letters and digits ("E-Mail" = e_mail)  ->  without a last word that says little
                                                                     ("E-mail Address" = email)
A later step handles only what the earlier ones left open, and matches only if there is a single candidate.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rowlock.errors import FileRefused
from rowlock.imports.fields import Field
from rowlock.imports.normalize import normal_text
from rowlock.imports.read.source import HeadRow

FOUND_MAX = 50  # the most columns that a message names
_GENERIC = frozenset({"address", "no", "number", "nr"})


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    columns: dict[str, int]  # field -> column index from 0
    unknown: list[tuple[int, str]]  # columns without a field
    missing: list[str]  # required fields without a column
    twice: list[tuple[str, tuple[int, ...]]]  # fields with several columns


@dataclass(frozen=True, slots=True)
class Header:
    row: int
    cells: tuple[str, ...]
    match: HeaderMatch


def match_headers(cells: Sequence[str], fields: Sequence[Field]) -> HeaderMatch:
    """Match columns to fields. Each column takes its best match; `twice` lists fields with several columns."""
    texts = [_tidy(cell) for cell in cells]
    found: dict[int, str] = {}
    for key in (_tidy, _folded):
        names = _names(fields, key)
        for index, text in enumerate(texts):
            if index not in found and text and (name := names.get(key(text))):
                found[index] = name
    found |= _trimmed_matches(texts, found, names)
    places: dict[str, list[int]] = {}
    for index in sorted(found):
        places.setdefault(found[index], []).append(index)
    return HeaderMatch(
        columns={name: where[0] for name, where in places.items()},
        unknown=[(index, text) for index, text in enumerate(texts) if index not in found and text],
        missing=[field.name for field in fields if field.required and field.name not in places],
        twice=[(name, tuple(where)) for name, where in places.items() if len(where) > 1],
    )


def find_header(head: Sequence[HeadRow], fields: Sequence[Field]) -> Header:
    """Return the header: the first row with all required fields, else the one with most fields, else the first.

    Raises FileRefused if there are no rows.
    """
    if not head:
        raise FileRefused("the file is empty: it has no header row", code="empty_file")
    best: Header | None = None
    for one in head:
        header = Header(one.row, one.cells, match_headers(one.cells, fields))
        found = len(header.match.columns)
        if found and not header.match.missing:
            return header
        if best is None or found > len(best.match.columns):
            best = header
    assert best is not None
    return best


def refuse_header(header: Header, fields: Sequence[Field]) -> None:
    """Raise FileRefused if a field has several columns or a required field has none."""
    match, cells = header.match, [_tidy(cell) for cell in header.cells]
    found = [text for text in cells if text][:FOUND_MAX]
    if match.twice:
        told = "; ".join(
            f"{_and(f'{letter(index)} ({cells[index]!r})' for index in where)} are both for {name!r}"
            for name, where in match.twice
        )
        twice = {name: [letter(index) for index in where] for name, where in match.twice}
        raise FileRefused(
            f"row {header.row}, the header, has duplicate columns: {told}; rename or remove one",
            code="duplicate_column",
            more={"twice": twice, "found": found, "row": header.row},
        )
    if match.missing:
        by_name = {field.name: field for field in fields}
        left = [text for _, text in match.unknown]
        nearest = {name: near for name in match.missing if (near := _nearest(by_name[name], left))}
        told = ", ".join(
            f"{by_name[name].headers[0]!r}" + (f" (did you mean {_or(nearest[name])}?)" if name in nearest else "")
            for name in match.missing
        )
        has = ", ".join(repr(text) for text in found) or "nothing"
        more = " and others" if len([text for text in cells if text]) > FOUND_MAX else ""
        raise FileRefused(
            f"required columns are missing: {told}; row {header.row} was read as the header and has {has}{more}",
            code="missing_columns",
            more={"missing": list(match.missing), "found": found, "nearest": nearest, "row": header.row},
        )


def letter(index: int) -> str:
    """Return the name of a column in a spreadsheet program; index 0 is A."""
    name = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _trimmed_matches(texts: Sequence[str], found: Mapping[int, str], names: Mapping[str, str]) -> dict[int, str]:
    """Match columns whose name without a generic last word is a field's; skips fields with two such columns."""
    wanted: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        words = _words(text)
        if index not in found and len(words) > 1 and words[-1] in _GENERIC:
            name = names.get("".join(words[:-1]))
            if name is not None and name not in found.values():
                wanted.setdefault(name, []).append(index)
    return {where[0]: name for name, where in wanted.items() if len(where) == 1}


def _names(fields: Sequence[Field], key: Callable[[str], str]) -> dict[str, str]:
    """Return the field of each spelling, without spellings that two fields share."""
    names: dict[str, str] = {}
    shared: set[str] = set()
    for field in fields:
        for text in field.headers:
            spelling = key(text)
            if spelling and names.setdefault(spelling, field.name) != field.name:
                shared.add(spelling)
    return {spelling: name for spelling, name in names.items() if spelling not in shared}


def _tidy(text: str) -> str:
    return " ".join(normal_text(text).split())


def _words(text: str) -> list[str]:
    """Return the words of a name in lower case, without accents: the same for E-Mail, e_mail, eMail, ÉMail."""
    text = re.sub(r"(?<=[a-z0-9ß-ÿ])(?=[A-ZÀ-Þ])", " ", text)
    text = text.casefold()
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return [word for word in re.split(r"[\W_]+", text) if word]


def _folded(text: str) -> str:
    return "".join(_words(text))


def _nearest(field: Field, left: Sequence[str]) -> list[str]:
    spelled = {_folded(text): text for text in left}
    near: dict[str, float] = {}
    for wanted in field.headers:
        target = _folded(wanted)
        for match in difflib.get_close_matches(target, spelled, n=3, cutoff=0.6):
            ratio = difflib.SequenceMatcher(None, target, match).ratio()
            near[spelled[match]] = max(near.get(spelled[match], 0.0), ratio)
    return sorted(near, key=lambda text: -near[text])[:3]


def _and(texts: Iterable[str]) -> str:
    return " and ".join(texts)


def _or(texts: Sequence[str]) -> str:
    return " or ".join(repr(text) for text in texts)

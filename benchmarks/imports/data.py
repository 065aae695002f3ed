"""The files: customers from a seed, keys in random order, 0.5 % of the rows bad in known ways, with expected results.

NAME.csv, NAME.clean.csv    the file, and only its rows that belong in the table
NAME.truth.json             rows, bad cells by row and column, repeated keys, and a checksum of the table
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.imports.model import COLUMNS

SEED = 20_261_116
BAD_SHARE = 0.005
_STRIDE, _MODULUS = 1_190_494_759, 2_147_483_647  # a permutation of the numbers below the (prime) modulus
_FIRST = ("Ada", "Björn", "Chloé", "Dario", "Elif", "Femi", "Gösta", "Hana", "Ivo", "Jun", "Katja", "Lev", "Mira")
_LAST = ("Abel", "Brandt", "Costa", "Duarte", "Eriksen", "Fontaine", "Gruber", "Haddad", "Ivanov", "Jónsson", "Kim")
_FIRMS = ("Alder Supply", "Beacon Tools", "Cedar & Sons", "Dune Works", "Estuary Foods", "Foundry 9", "Glasshouse")
_FORMS = ("AB", "BV", "GmbH", "Inc", "Lda", "Ltd", "Oy", "SA")
_CITIES = ("Aarhus", "Bilbao", "Cork", "Dresden", "Évora", "Fukuoka", "Gdańsk", "Halifax", "Izmir", "Jena", "Køge")
_COUNTRIES = ("CA", "DE", "DK", "ES", "FR", "IE", "JP", "PL", "PT", "SE", "TR", "US")
_NOTES = ("pays late", "call first", "net 30", "new contact", "ships monthly", "old terms", "wants a quote", "vip")
_KINDS = ("email", "since", "negative", "number", "missing", "two", "repeated")


@dataclass(slots=True)
class Truth:
    """The content of a file, and of the table after its import."""

    rows: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)  # row number as in a spreadsheet, and column
    bad_rows: int = 0
    repeated: int = 0  # rows whose key is repeated further down
    loaded: int = 0
    content: int = 0

    @property
    def bad_cells(self) -> int:
        return len(self.bad)


@dataclass(frozen=True, slots=True)
class File:
    path: Path
    clean: Path
    truth: Truth


def make(directory: Path, name: str, rows: int, seed: int = SEED) -> File:
    """Write a file of this many rows, its clean part and its expected result, unless they exist."""
    name = f"{name}-{rows}-{seed}"
    path, clean, known = (directory / f"{name}.{end}" for end in ("csv", "clean.csv", "truth.json"))
    if known.exists():
        told = json.loads(known.read_text())
        return File(path, clean, Truth(**told | {"bad": [(row, column) for row, column in told["bad"]]}))
    truth = Truth(rows=rows)
    with path.open("w", newline="", encoding="utf-8") as whole, clean.open("w", newline="", encoding="utf-8") as good:
        both = csv.writer(whole, lineterminator="\n"), csv.writer(good, lineterminator="\n")
        for writer in both:
            writer.writerow(COLUMNS)
        for number, (cells, bad) in enumerate(_rows(rows, seed), 2):
            both[0].writerow(cells)
            if bad == ("",):
                truth.repeated += 1
            elif bad:
                truth.bad += [(number, column) for column in bad]
                truth.bad_rows += 1
            else:
                both[1].writerow(cells)
                truth.loaded += 1
                truth.content += content(cells)
    known.write_text(json.dumps(asdict(truth)))
    return File(path, clean, truth)


def shelf(cache: Path) -> Path:
    """Return the directory of files that runs share; removes files of other versions of this module."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    parent = cache / "files"
    for other in parent.iterdir() if parent.is_dir() else ():
        if other.name != version:
            shutil.rmtree(other)
    (parent / version).mkdir(parents=True, exist_ok=True)
    return parent / version


def content(cells: list[str]) -> int:
    """Return a checksum of a table row; the sum of them does not depend on the order of rows."""
    text = "|".join(cell or r"\N" for cell in cells)
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:15], 16)


def _rows(count: int, seed: int) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield rows with the bad columns of each; ("",) if only its key is repeated."""
    dice = random.Random(seed)
    bad_at = set(dice.sample(range(count), int(count * BAD_SHARE)))
    for index in range(count):
        cells = _good(index, dice, seed)
        if index not in bad_at:
            yield cells, ()
            continue
        kind = dice.choice(_KINDS)
        later = dice.randrange(index, count)
        if kind == "repeated" and later not in bad_at:
            cells[0] = _key(later, seed)
            yield cells, ("",)
        else:
            yield cells, _spoil(cells, index, "email" if kind == "repeated" else kind, dice)


def _key(index: int, seed: int) -> str:
    number = (index + 1) * _STRIDE % _MODULUS
    return f"{number:08x}.{seed % 9973}@mail{number % 983}.example.com"


def _good(index: int, dice: random.Random, seed: int) -> list[str]:
    throw = dice.getrandbits(60)
    first, last = _FIRST[throw % 13], _LAST[throw // 13 % 11]
    note = ", ".join((_NOTES[throw & 7], _NOTES[throw >> 3 & 7], _NOTES[throw >> 6 & 7]))
    if index % 19 == 0:
        note = f'said "{note}"'
    return [
        _key(index, seed),
        f"{first} {last}",
        f"{_FIRMS[throw % 7]} {_FORMS[throw >> 9 & 7]}" if index % 11 else "",
        f"+{throw % 89 + 10} {throw >> 12 & 0xFFFFFF:08d}" if index % 17 else "",
        _CITIES[throw // 7 % 11] if index % 13 else "",
        _COUNTRIES[throw // 5 % 12],
        (dt.date(2010, 1, 1) + dt.timedelta(throw // 3 % 6_000)).isoformat(),
        f"{(throw >> 20) % 10_000_000 / 100:.2f}",
        "false" if throw % 5 == 0 else "true",
        note if index % 7 else "",
    ]


def _spoil(cells: list[str], index: int, kind: str, dice: random.Random) -> tuple[str, ...]:
    """Make a row bad; return the bad columns."""

    def put(column: str, value: str) -> tuple[str, ...]:
        cells[COLUMNS.index(column)] = value
        return (column,)

    match kind:
        case "email":
            return put("email", dice.choice((f"nobody{index}", f"nobody{index}@", f"no body{index}@example.com")))
        case "since":  # PostgreSQL accepts "yesterday" as a date
            return put("since", dice.choice(("2021-02-29", "31/12/2022", "yesterday", "soon", "2023-13-01")))
        case "negative":
            return put("balance", f"-{index % 1_000 + 1}.50")
        case "number":  # and NaN for a number
            return put("balance", dice.choice(("ten", "1..5", "NaN", "12,50", "1O.00")))
        case "missing":
            return put(dice.choice(("email", "name", "country", "since", "balance")), "")
        case _:
            return put("email", f"nobody{index}@") + put("country", "Norway")


def make_workbook(file: File) -> Path:
    """Write the same rows as a workbook: shared strings; dates, numbers and booleans in cells of their types."""
    import xlsxwriter

    path = file.path.with_suffix(".xlsx")
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    book = xlsxwriter.Workbook(str(unfinished))
    sheet = book.add_worksheet("customers")
    day = book.add_format({"num_format": "yyyy-mm-dd"})
    since, balance, active = (COLUMNS.index(column) for column in ("since", "balance", "active"))
    with file.path.open(newline="", encoding="utf-8") as source:
        for row, cells in enumerate(csv.reader(source)):
            for column, cell in enumerate(cells):
                if not cell:
                    continue
                if row and column == since and (date := _date(cell)):
                    sheet.write_datetime(row, column, date, day)
                elif row and column == balance and (number := _number(cell)) is not None:
                    sheet.write_number(row, column, number)
                elif row and column == active:
                    sheet.write_boolean(row, column, cell == "true")
                else:
                    sheet.write_string(row, column, cell)
    book.close()
    return unfinished.rename(path)


def _date(cell: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(cell, "%Y-%m-%d")
    except ValueError:
        return None


def _number(cell: str) -> float | None:
    return float(cell) if cell.lstrip("-").replace(".", "", 1).isdigit() else None

"""Random tables, importers and files; each cell is drawn together with the value that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from model.import_values import BAD, POOLS, Cell, normal, pool
from model.import_words import KEY_TYPES, RULES, TYPES, TYPES_STRICT

FIXED_IDS = range(1, 6)
"""The rows of the table that references may go to."""

FIXED = [Cell(str(n), n) for n in (*FIXED_IDS, 99)]
PLACES = [Cell(name, name) for name in ("Oslo", "Lima", "Atlantis")]
EMPTY = Cell("", None)
ODD = [Cell(word, word) for word in ("moon", "a")]


@dataclass(frozen=True)
class Features:
    """What the generator may draw; one that a store does not keep yet is switched off here, by its name."""

    self_reference: bool = True  # rows that refer to rows of the same file
    suppressing: bool = True  # triggers that leave a row out without an error
    failing: bool = True  # SQLite's RAISE(FAIL), which keeps what was done before it


@dataclass(frozen=True)
class Spec:
    """A column of the table, and the field of the model that goes into it."""

    name: str
    kind: str
    type: Any  # in the words of the store
    not_null: bool = False  # of the table
    required: bool = False  # of the model
    rule: str | None = None  # a CHECK, or what a validator says
    unique: str | None = None  # beside the key: how it is declared
    refers: str | None = None  # to "fixed" or "own"
    late: str = ""  # when the reference is checked
    places: int | None = None  # of a decimal, in the model


@dataclass(frozen=True)
class Trigger:
    """What happens to rows whose `column` has this text: they raise, fail or are suppressed."""

    action: str
    column: str
    text: str


@dataclass(frozen=True)
class Case:
    columns: tuple[Spec, ...]  # those of the key first
    key: tuple[str, ...]
    mode: str
    policy: str
    duplicates: str
    before: tuple[Mapping[str, Any], ...]
    file: tuple[Mapping[str, Cell], ...]
    workbook: bool
    absent: str | None = None  # a column that the file lacks
    trigger: Trigger | None = None
    counts_writes: bool = False  # a trigger counts in a column of its own how often a row was written
    rights: str = "owner"  # or a role: "plain", "policy", "hidden", "no_update"
    options: str = ""  # of CREATE TABLE
    folds: bool = False  # unique texts ignore letter case

    def spec(self, name: str) -> Spec:
        return next(spec for spec in self.columns if spec.name == name)

    @property
    def in_file(self) -> list[str]:
        return [spec.name for spec in self.columns if spec.name != self.absent]

    def survivors(self) -> tuple[dict[int, dict[str, Any]], set[int], int]:
        """The rows that reach the table by number, the numbers of bad ones, and how many are duplicates."""
        valid: dict[int, dict[str, Any]] = {}
        bad: set[int] = set()
        for number, cells in enumerate(self.file, start=2):
            values = {name: cells[name].value for name in self.in_file}
            missing = any(values.get(s.name) is None and s.required for s in self.columns)
            if missing or any(value is BAD for value in values.values()):
                bad.add(number)
            else:
                valid[number] = {name: normal(v) if name in self.key else v for name, v in values.items()}
        by_key: dict[Any, list[int]] = {}
        for number, values in valid.items():
            by_key.setdefault(tuple(values[name] for name in self.key), []).append(number)
        again = {number for numbers in by_key.values() for number in numbers[:-1]}
        if self.duplicates == "error":
            twice = {number for numbers in by_key.values() if len(numbers) > 1 for number in numbers}
            return {n: values for n, values in valid.items() if n not in twice}, bad | twice, 0
        return {n: values for n, values in valid.items() if n not in again}, bad, len(again)


@st.composite
def cases(draw: st.DrawFn, store: str, features: Features) -> Case:
    strict = store == "sqlite" and draw(st.integers(0, 4)) == 0
    rights = draw(st.sampled_from(["owner", "owner", "plain", "policy", "hidden", "no_update"]))
    rights = rights if store == "postgres" else "owner"
    key = draw(_keys(store, strict))
    columns = [*key, *draw(_columns(store, strict))]
    if store != "mongo":
        columns += draw(_references(key, features, store))
    names = tuple(spec.name for spec in key)
    trigger = draw(_triggers(columns, features, store)) if store != "mongo" else None
    if rights in ("policy", "hidden"):
        columns.append(Spec("place", "text", "text"))
    # Cells from a seed: to draw each of them would take longer than to import them.
    writer = _Writer(columns, names, Random(draw(st.integers(0, 2**32))))
    before = writer.rows(draw(st.sampled_from([0, 12, 30])), ())
    good = [row for row in before if all(cell.value is not BAD for cell in row.values())]
    rows = writer.rows(draw(st.sampled_from([12, 40, 60, 30, 3])), good)
    rare = [s.name for s in columns if s.name not in names and not s.not_null and not s.required]
    absent = draw(st.sampled_from(rare)) if rare and draw(st.integers(0, 5)) == 0 else None
    return Case(
        columns=tuple(columns),
        key=names,
        mode=draw(st.sampled_from(["upsert", "upsert", "insert", "replace"])),
        policy=draw(st.sampled_from(["partial", "partial", "partial", "all_or_nothing"])),
        duplicates=draw(st.sampled_from(["last", "last", "error"])),
        before=tuple({name: cell.value for name, cell in row.items()} for row in good),
        file=tuple(rows),
        workbook=draw(st.integers(0, 3)) == 0,
        absent=absent,
        trigger=trigger,
        counts_writes=store != "mongo" and draw(st.booleans()),
        rights=rights,
        options=_options(draw, store, strict),
        folds=store != "postgres" and draw(st.integers(0, 4)) == 0,
    )


def _options(draw: st.DrawFn, store: str, strict: bool) -> str:
    if store != "sqlite":
        return ""
    words = [*(["STRICT"] if strict else []), *(["WITHOUT ROWID"] if draw(st.integers(0, 3)) == 0 else [])]
    return ", ".join(words)


@st.composite
def _keys(draw: st.DrawFn, store: str, strict: bool) -> list[Spec]:
    chosen = st.sampled_from([each for each in KEY_TYPES[store] if not strict or each[1] in TYPES_STRICT])
    count = draw(st.sampled_from([1, 1, 2]))
    types = [draw(chosen) for _ in range(count)]
    return [Spec(f"k{n}", kind, type, not_null=True, required=True) for n, (kind, type) in enumerate(types)]


@st.composite
def _columns(draw: st.DrawFn, store: str, strict: bool) -> list[Spec]:
    chosen = st.sampled_from([each for each in TYPES[store] if not strict or each[1] in TYPES_STRICT])
    made = []
    taken = False
    for n in range(draw(st.integers(1, 4))):
        kind, type = draw(chosen)
        rules = RULES[store].get((kind, str(type)), [])
        unique = None
        if not taken and kind in ("text", "integer", "decimal", "date") and draw(st.integers(0, 3)) == 0:
            unique, taken = draw(st.sampled_from(_UNIQUE[store])), True
        made.append(
            Spec(
                f"c{n}",
                kind,
                type,
                not_null=draw(st.integers(0, 3)) == 0,
                required=draw(st.integers(0, 5)) == 0,
                rule=draw(st.sampled_from(rules)) if rules and draw(st.booleans()) else None,
                unique=unique,
                places=2 if kind == "decimal" and draw(st.booleans()) else None,
            )
        )
    return made


_UNIQUE: dict[str, Sequence[str]] = {
    "sqlite": ("", "", "ON CONFLICT IGNORE", "ON CONFLICT REPLACE", "ON CONFLICT ROLLBACK"),
    "postgres": ("", "", "NULLS NOT DISTINCT"),
    "mongo": ("plain", "partial", "sparse"),
}


@st.composite
def _references(draw: st.DrawFn, key: Sequence[Spec], features: Features, store: str) -> list[Spec]:
    late = st.sampled_from(["", "DEFERRABLE INITIALLY DEFERRED", "DEFERRABLE INITIALLY IMMEDIATE"])
    made = []
    if draw(st.integers(0, 2)) == 0:
        whole = {"sqlite": "INTEGER", "postgres": "bigint"}[store]
        made.append(Spec("owner", "integer", whole, refers="fixed", late=draw(late)))
    if features.self_reference and len(key) == 1 and draw(st.integers(0, 2)) == 0:
        made.append(Spec("parent", key[0].kind, key[0].type, refers="own", late=draw(late)))
    return made


@st.composite
def _triggers(draw: st.DrawFn, columns: Sequence[Spec], features: Features, store: str) -> Trigger | None:
    texts = [spec.name for spec in columns if spec.kind == "text" and spec.refers is None]
    actions = ["raise", *(["suppress"] if features.suppressing else [])]
    actions += ["fail"] if features.failing and store == "sqlite" else []
    if not texts or draw(st.integers(0, 2)):
        return None
    return Trigger(draw(st.sampled_from(actions)), draw(st.sampled_from(texts)), draw(st.sampled_from(["moon", "a"])))


def _some(cells: Sequence[Cell], count: int, random: Random) -> list[Cell]:
    return random.sample(cells, min(count, len(cells)))


class _Writer:
    """Writes rows; their references to each other never go in a circle but to themselves."""

    def __init__(self, columns: Sequence[Spec], key: Sequence[str], random: Random) -> None:
        self._columns = columns
        self._random = random
        few = random.choice([6, 20, 60])
        self._keys = {s.name: _some(POOLS[f"{s.kind} key"], few, random) for s in columns if s.name in key}
        self._ranked = [*self._keys[key[0]]]
        random.shuffle(self._ranked)
        self._rank = {normal(cell.value): place for place, cell in reversed([*enumerate(self._ranked)])}

    def rows(self, count: int, known: Sequence[Mapping[str, Cell]]) -> list[dict[str, Cell]]:
        """Return this many rows, some of them identical to rows of the table."""
        some = [dict(row) for row in known]
        return [self._random.choice(some) if some and self._one_in(6) else self._row() for _ in range(count)]

    def _one_in(self, times: int) -> bool:
        return self._random.randrange(times) == 0

    def _row(self) -> dict[str, Cell]:
        row = {name: self._random.choice(cells) for name, cells in self._keys.items()}
        for spec in self._columns:
            if spec.name not in row:
                row[spec.name] = self._parent(row) if spec.refers == "own" else self._cell(spec)
        return row

    def _cell(self, spec: Spec) -> Cell:
        if spec.refers == "fixed":
            return self._random.choice([EMPTY, *FIXED])
        if spec.name == "place":
            return self._random.choice(PLACES)
        good, bad = pool(spec.kind, spec.places)
        if spec.kind == "text" and self._one_in(8):  # what triggers and rules look for
            return self._random.choice(ODD)
        if self._one_in(14):  # about one row in six has a bad cell, or none where there must be one
            return self._random.choice([EMPTY, *bad])
        return self._random.choice(good)

    def _parent(self, row: Mapping[str, Cell]) -> Cell:
        own = self._ranked[self._rank[normal(next(iter(row.values())).value)]]
        place = self._rank[normal(own.value)]
        how = self._random.randrange(10)
        if how < 7 and place:
            found = self._ranked[self._random.randrange(place)]
            # The first of those that are equal: a later one may be written otherwise.
            found = self._ranked[self._rank[normal(found.value)]]
        elif how == 7:
            found = own
        elif how == 8:
            found = self._random.choice([cell for cell in POOLS["missing"] if type(cell.value) is type(own.value)])
        else:
            return EMPTY
        text = normal(found.text).strip()
        return Cell(text, normal(found.value))

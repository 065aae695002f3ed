"""What an import type is: a schema, a key, a destination, and hooks for each step.

parse ─▶ check ─▶ enrich ─▶ transform ─▶ load        (a chunk at a time)
prepare (once, before the chunks)      finish (once, after them)
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from rowlock.errors import SettingsError
from rowlock.imports.checking.shape import shape_of
from rowlock.imports.fields import Field, column_of, fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.source import ROW
from rowlock.jobs.registry import checked_name
from rowlock.storage.tables import Column, Kind, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

    from rowlock.imports.run import Run

E = TypeVar("E", bound=StrEnum)

IMPORT_JOB = "rowlock.import"


class Policy(StrEnum):
    """What bad rows mean for the others."""

    PARTIAL = "partial"  # good rows are loaded, bad ones reported
    ALL_OR_NOTHING = "all_or_nothing"  # one bad row, and nothing is loaded


class Duplicates(StrEnum):
    """What it means that a key is there twice in a file."""

    LAST = "last"  # the last row wins, the others count as duplicates
    ERROR = "error"  # all rows of the key are bad


class Importer:
    """One import type. Declare it with `@app.importer(name, ...)`; what is given there replaces what the class says.

    A frame is a Polars DataFrame with a column `row`, the row number in the file, which every hook must keep.
    """

    row: ClassVar[type[BaseModel]]
    """The model of a row of the file: its schema, and the text of its errors."""
    into: ClassVar[str]
    """The table that rows go into."""
    key: ClassVar[Sequence[str]] = ()
    """The columns that tell a row from all others; none: every row is inserted."""
    mode: ClassVar[Mode | str] = Mode.UPSERT
    stored: ClassVar[type[BaseModel] | None] = None
    """The model of a row of the table, where `transform` makes other rows than the file has."""
    partition: ClassVar[Sequence[str] | None] = None
    """The columns of the file whose equal values must meet in one chunk; by default those of the key."""
    duplicates: ClassVar[Duplicates | str] = Duplicates.LAST
    policy: ClassVar[Policy | str] = Policy.PARTIAL
    errors_max: ClassVar[int | None] = None
    """Stop after so many errors; None: never."""
    company: ClassVar[str | None] = None
    """The column that gets the import's company, a part of the key."""
    default_company: ClassVar[str | None] = None
    """Whose rows they are where the import names no company; None: it must name one."""
    constants: ClassVar[Sequence[str]] = ()
    """Columns whose value `prepare` sets for all rows, in `run.values`; `replace` wipes only what has these values."""
    provenance: ClassVar[tuple[str, str] | None] = None
    """Two columns that get the import's id and the row number."""
    create: ClassVar[bool] = True
    """Whether a table that is missing is created from the model."""
    formats: ClassVar[Formats] = Formats()
    """How cells are written: decimal comma, order of dates, words for yes and no; nothing else is guessed."""
    field_formats: ClassVar[Mapping[str, Formats]] = {}
    """The same for single fields, by name."""
    queue: ClassVar[str | None] = None

    @property
    def hooked(self) -> bool:
        """Whether it changes rows after they were checked."""
        return type(self).enrich is not Importer.enrich or type(self).transform is not Importer.transform

    @property
    def parses(self) -> bool:
        """Whether it changes cells before they are checked."""
        return type(self).parse is not Importer.parse

    async def prepare(self, run: Run) -> None:
        """Once, before the chunks, in the transaction that lets them start: look up context, deactivate, check."""

    def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Change cells as they were read: text, in columns named as the model's fields.

        With a key it sees each row twice: rows are split by the key that they have after it.
        """
        return frame

    def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Add to rows that are valid: look things up, compute."""
        return frame

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Make rows of the table out of rows of the file."""
        return frame

    async def load(self, frame: pl.DataFrame, run: Run) -> Loaded:
        """Put the rows into the table, in the transaction that records what became of them."""
        return await run.load(frame)

    async def finish(self, run: Run) -> Mapping[str, Any] | None:
        """Once, after all chunks, in the transaction that ends the import; what it returns is kept with the result."""
        return None


@dataclass(frozen=True, slots=True)
class ImportType:
    """A declared importer, checked."""

    name: str
    importer: Importer
    row: type[BaseModel]
    fields: Sequence[Field]
    columns: Sequence[Column]  # of the table, constants and provenance included
    key: Sequence[str]  # of the table, the company included
    partition: Sequence[Field]  # whose equal values meet in one chunk; none: lines are split as they come
    rowwise: bool  # the model looks at rows as a whole, and may change any field of them
    into: str
    mode: Mode
    duplicates: Duplicates
    policy: Policy
    errors_max: int | None
    company: str | None
    constants: Sequence[str]  # the company not included
    provenance: tuple[str, str] | None
    create: bool
    queue: str | None

    @property
    def about(self) -> str | None:
        """What its importer says of itself, in a line."""
        own = vars(type(self.importer)).get("__doc__") if type(self.importer) is not Importer else None
        return str(own).strip().splitlines()[0].strip() if own and own.strip() else None

    @property
    def late(self) -> bool:
        """Whether only the worker can tell which keys are equal, after it has read and checked the rows."""
        from rowlock.imports.checking.keys import hashable

        return bool(self.partition) and (self.rowwise or self.importer.parses or not hashable(self.partition))

    def scope(self, company_id: str | None) -> str | None:
        """What an import of this company wipes: two that wipe the same exclude each other; None: nothing."""
        if self.mode is not Mode.REPLACE:
            return None
        whose = "" if self.company is None else company_id or self.importer.default_company or ""
        return f"{self.into}|{whose}"

    @property
    def strategy(self) -> str:
        """How rows are split into chunks, in a word."""
        return f"{self.name}:{'-'.join(f.name for f in self.partition)}-hash" if self.partition else f"{self.name}:rows"


def declared(name: str, importer: Importer, options: Mapping[str, Any]) -> ImportType:
    """Check a declaration; raises SettingsError that says what is wrong with it."""
    checked_name(name, "importer")
    for option, value in options.items():
        if option not in _OPTIONS:
            raise SettingsError(f"importer {name!r}: {option}= is unknown; there are {', '.join(sorted(_OPTIONS))}")
        setattr(importer, option, value)
    for needed in ("row", "into"):
        if not hasattr(importer, needed):
            raise SettingsError(f"importer {name!r}: give {needed}=, {_NEEDED[needed]}")
    if not (isinstance(importer.row, type) and issubclass(importer.row, BaseModel)):
        raise SettingsError(f"importer {name!r}: row= must be a pydantic model, not {importer.row!r}")
    fields = _fields(name, importer)
    if any(field.name == ROW for field in fields):
        raise SettingsError(f"importer {name!r}: a field cannot be called {ROW!r}, which is the number of the row")
    mode = _one_of(name, "mode", Mode, importer.mode)
    columns = _columns(importer, fields)
    known = {column.name for column in columns}
    key = (*([importer.company] if importer.company else []), *importer.key)
    if not importer.key:
        key = ()
        if mode is Mode.UPSERT:
            raise SettingsError(f"importer {name!r}: give key=, the columns to upsert by, or mode='insert'")
    for column in key:
        if column not in known:
            raise SettingsError(f"importer {name!r}: key column {column!r} is not one of {', '.join(sorted(known))}")
    return ImportType(
        name,
        importer,
        importer.row,
        fields,
        columns,
        key,
        _partition(name, importer, fields),
        shape_of(importer.row).rowwise,
        importer.into,
        mode,
        _one_of(name, "duplicates", Duplicates, importer.duplicates),
        _one_of(name, "policy", Policy, importer.policy),
        importer.errors_max,
        importer.company,
        tuple(importer.constants),
        importer.provenance,
        importer.create,
        importer.queue,
    )


def _fields(name: str, importer: Importer) -> list[Field]:
    try:
        return fields_of(importer.row, importer.formats, importer.field_formats)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"importer {name!r}: {error}") from error


def _columns(importer: Importer, fields: Sequence[Field]) -> list[Column]:
    stored = fields if importer.stored is None else fields_of(importer.stored, importer.formats)
    model = importer.stored or importer.row
    key = set(importer.key)
    made = {f.name: column_of(f) for f in stored if not model.model_fields[f.name].exclude}
    fixed = [*([importer.company] if importer.company else []), *importer.constants]
    for constant in fixed:
        made.setdefault(constant, Column(constant, Kind.TEXT))
    if importer.provenance is not None:
        import_id, row = importer.provenance
        made[import_id], made[row] = Column(import_id, Kind.UUID, nullable=True), Column(row, Kind.INTEGER, True)
    return [
        Column(c.name, c.kind, False, c.length_max, c.digits, c.places) if c.name in key else c for c in made.values()
    ]


def _partition(name: str, importer: Importer, fields: Sequence[Field]) -> tuple[Field, ...]:
    by_name = {field.name: field for field in fields}
    if importer.partition is not None:
        for column in importer.partition:
            if column not in by_name:
                raise SettingsError(f"importer {name!r}: partition column {column!r} is not a field of the row")
        return tuple(by_name[column] for column in importer.partition)
    if missing := [column for column in importer.key if column not in by_name and column not in importer.constants]:
        raise SettingsError(
            f"importer {name!r}: key column {missing[0]!r} is not in the file; give partition=, those columns of the "
            f"file whose equal values belong to the same key"
        )
    return tuple(by_name[column] for column in importer.key if column in by_name)


def _one_of(name: str, option: str, kind: type[E], given: E | str) -> E:
    try:
        return kind(given)
    except ValueError:
        raise SettingsError(f"importer {name!r}: {option} must be {', '.join(kind)}, not {given!r}") from None


_NEEDED = {"row": "a pydantic model of one row of the file", "into": "the table that rows go into"}
_OPTIONS = set(Importer.__annotations__)

"""Import types: a row schema, a key, a destination table, and hooks for each step.

parse ─▶ check ─▶ enrich ─▶ transform ─▶ load        (a chunk at a time)
prepare (once, before the chunks)      finish (once, after them)
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from rowlock.errors import CompanyMismatch, SettingsError
from rowlock.imports.check.model_schema import row_spec
from rowlock.imports.fields import Field, column_of, fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.read.source import ROW
from rowlock.jobs.registry import checked_name
from rowlock.storage.tables import Column, Kind, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

    from rowlock.imports.run import Run

E = TypeVar("E", bound=StrEnum)

IMPORT_JOB = "rowlock.import"


class Policy(StrEnum):
    """Whether good rows are loaded if the file has bad ones."""

    PARTIAL = "partial"  # good rows are loaded, bad ones reported
    ALL_OR_NOTHING = "all_or_nothing"  # one bad row is enough, and nothing is loaded


class Duplicates(StrEnum):
    """How several rows with the same key in one file are handled."""

    LAST = "last"  # the last row wins, the others count as duplicates
    ERROR = "error"  # all rows with the key are bad


class Importer:
    """One import type. Declare it with `@app.importer(name, ...)`; options given there override the class attributes.

    Hooks get Polars DataFrames with a column `row`, the row number in the file, and must keep that column.
    """

    row: ClassVar[type[BaseModel]]
    """The pydantic model of a row of the file: its schema and the texts of its errors."""
    into: ClassVar[str]
    """The table that rows are loaded into."""
    key: ClassVar[Sequence[str]] = ()
    """The columns that identify a row (default: none, every row is inserted)."""
    mode: ClassVar[Mode | str] = Mode.UPSERT
    stored: ClassVar[type[BaseModel] | None] = None
    """The model of a row of the table, if `transform` returns other columns than the file has (default: `row`)."""
    partition: ClassVar[Sequence[str] | None] = None
    """The columns of the file whose equal values must be in one chunk (default: those of the key)."""
    duplicates: ClassVar[Duplicates | str] = Duplicates.LAST
    policy: ClassVar[Policy | str] = Policy.PARTIAL
    errors_max: ClassVar[int | None] = None
    """Stop the import if it has more errors than this (default: None, no limit)."""
    company: ClassVar[str | None] = None
    """The column that gets the import's company; it becomes part of the key."""
    default_company: ClassVar[str | None] = None
    """The company of imports that name none (default: None, each import must name one)."""
    constants: ClassVar[Sequence[str]] = ()
    """Columns whose value `prepare` sets for all rows in `run.values`; `replace` wipes only rows with these values."""
    provenance: ClassVar[tuple[str, str] | None] = None
    """Two columns that get the import's id and the row number."""
    create: ClassVar[bool] = True
    """Whether a missing table is created from the model (default: True)."""
    formats: ClassVar[Formats] = Formats()
    """Cell formats: decimal comma, order of dates, words for yes and no; others are not guessed."""
    field_formats: ClassVar[Mapping[str, Formats]] = {}
    """Formats of single fields, by name."""
    queue: ClassVar[str | None] = None

    @property
    def hooked(self) -> bool:
        """Whether the importer has `enrich` or `transform`, which change rows after they were checked."""
        return type(self).enrich is not Importer.enrich or type(self).transform is not Importer.transform

    @property
    def parses(self) -> bool:
        """Whether the importer has `parse`, which changes cells before they are checked."""
        return type(self).parse is not Importer.parse

    @property
    def loads(self) -> bool:
        """Whether the importer has its own `load`, which may change rows before they are written."""
        return type(self).load is not Importer.load

    async def prepare(self, run: Run) -> None:
        """Run once before the chunks, in the transaction that enqueues them: look up context, deactivate, check.

        A dry run rolls it back. An importer with a key and `parse` also runs it beforehand and rolls that back.
        """

    def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Change cells before they are checked: text, in columns named like the model's fields.

        With a key it gets each row twice if there are several chunks: rows are split by the key that it returns.
        """
        return frame

    def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Extend valid rows: look things up, compute."""
        return frame

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame | Awaitable[pl.DataFrame]:
        """Turn rows of the file into rows of the table."""
        return frame

    async def load(self, frame: pl.DataFrame, run: Run) -> Loaded:
        """Write the rows to the table, in the transaction that records their outcomes."""
        return await run.load(frame)

    async def finish(self, run: Run) -> Mapping[str, Any] | None:
        """Run once after all chunks, in the transaction that ends the import; its return value is stored in the result.

        A dry run does not call it.
        """
        return None


@dataclass(frozen=True, slots=True)
class ImportType:
    """The validated declaration of an importer."""

    name: str
    importer: Importer
    row: type[BaseModel]
    fields: Sequence[Field]
    columns: Sequence[Column]  # of the table, constants and provenance included
    key: Sequence[str]  # of the table, the company included
    partition: Sequence[Field]  # rows with equal values are in one chunk; empty: rows are split in the file's order
    rowwise: bool  # the model validates rows as a whole, and may change any field of them
    into: str
    mode: Mode
    duplicates: Duplicates
    policy: Policy
    errors_max: int | None
    company: str | None
    constants: Sequence[str]  # without the company
    provenance: tuple[str, str] | None
    create: bool
    queue: str | None

    @property
    def about(self) -> str | None:
        """The first line of the importer's docstring; None if it has none."""
        own = vars(type(self.importer)).get("__doc__") if type(self.importer) is not Importer else None
        return str(own).strip().splitlines()[0].strip() if own and own.strip() else None

    @property
    def late(self) -> bool:
        """Whether keys can be compared only in the worker, after it has parsed and checked the rows."""
        from rowlock.imports.check.keys import hashable

        return bool(self.partition) and (self.rowwise or self.importer.parses or not hashable(self.partition))

    def scope(self, company_id: str | None) -> str | None:
        """Return the scope that an import of this company replaces, None unless the mode is `replace`.

        Two imports of the same scope exclude each other.
        """
        if self.mode is not Mode.REPLACE:
            return None
        whose = "" if self.company is None else company_id or self.importer.default_company or ""
        return f"{self.into}|{whose}"

    def check_scoped(self) -> None:
        """Raise CompanyMismatch if there is no company column: a caller for one company could reach rows of others."""
        if self.company is None:
            raise CompanyMismatch(
                f"importer {self.name!r} has no company column, so it could change rows of other companies: use a "
                'token without a company, or declare the importer with company="<column>"'
            )

    @property
    def strategy(self) -> str:
        """How rows are split into chunks: `customers:email-hash`, or `customers:rows` without a partition."""
        return f"{self.name}:{'-'.join(f.name for f in self.partition)}-hash" if self.partition else f"{self.name}:rows"


def declared(name: str, importer: Importer, options: Mapping[str, Any]) -> ImportType:
    """Validate a declaration; raises SettingsError if it is wrong."""
    checked_name(name, "importer")
    for option, value in options.items():
        if option not in _OPTIONS:
            raise SettingsError(
                f"importer {name!r}: {option}= is unknown; the options are {', '.join(sorted(_OPTIONS))}"
            )
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
        row_spec(importer.row).rowwise,
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
        fields = fields_of(importer.row, importer.formats, importer.field_formats)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"importer {name!r}: {error}") from error
    key = {*importer.key, *(importer.partition or ())}
    return [replace(field, normal=field.name in key and field.kind is Kind.TEXT) for field in fields]


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

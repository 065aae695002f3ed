"""The `Run` that hooks of an importer get: the import, the values of `prepare`, and access to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

import orjson

from rowlock.errors import FileRefused, ImportFault, RowlockError
from rowlock.imports.importer import Importer, ImportType
from rowlock.jobs.payload import loads
from rowlock.storage.contract import Store, StoreTransaction
from rowlock.storage.imports import ImportRecord, RowError
from rowlock.storage.references import FOREIGN_KEY
from rowlock.storage.tables import Column, Kind, Load, Loaded, Mode, Refused, Replaces

if TYPE_CHECKING:
    import polars as pl

Hook = Callable[["pl.DataFrame", "Run"], "pl.DataFrame | Awaitable[pl.DataFrame]"]

SAMPLE_ROWS = 20
ROW_COLUMN = Column("row", Kind.INTEGER)


@dataclass(slots=True)
class Run:
    """One import, as its hooks see it."""

    id: str
    type: str
    file_name: str
    company_id: str | None
    project_id: str | None
    user_id: str | None
    dry_run: bool
    values: dict[str, Any]
    """JSON values that `prepare` passes to all chunks. Those named in `constants` become columns."""
    chunk: int | None = None
    rejected: list[RowError] = field(default_factory=list)
    direct: bool = False
    in_place: bool = False  # each chunk removes the rows that its own replace, the finish job removes the others
    absent: frozenset[str] = frozenset()  # fields that the file has no column for
    _declared: ImportType | None = None
    _store: Store | None = None
    _transaction: StoreTransaction | None = None
    into: str | None = None  # a staging table to load into, instead of the importer's table
    _waits: bool = False  # rows with missing references are left to the finish job
    _waiting: list[pl.DataFrame] = field(default_factory=list)

    def reject(self, rows: Iterable[int], reason: str, *, column: str | None = None, code: str = "rejected") -> None:
        """Reject these rows, by their number: they are reported with this reason and not loaded."""
        self.rejected.extend(RowError(row, column, code, reason) for row in rows)

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Run a query in the store's own language ($1, ?, a command), in the hook's transaction if it has one."""
        if self._transaction is not None:
            return await self._transaction.fetch(query, *args)
        assert self._store is not None
        async with self._store.reading() as transaction:
            return await transaction.fetch(query, *args)

    async def execute(self, query: Any, *args: Any) -> None:
        """Run a statement in the transaction of `prepare`, `load` or `finish`, which commits with the import's step.

        Raises ImportFault in other hooks.
        """
        if self._transaction is None:
            raise ImportFault("run.execute() needs the transaction of prepare, load or finish; enrich can only read")
        await self._transaction.execute(query, *args)

    async def load(self, frame: pl.DataFrame) -> Loaded:
        """Load rows into the importer's table, as it is declared; a dry run only reports what would change."""
        assert self._declared is not None
        if self._declared.importer.loads:
            return await self._load_checked(frame)
        return await self._load(frame)

    async def _load_checked(self, frame: pl.DataFrame) -> Loaded:
        from rowlock.imports.check.hook_output import checked_output

        assert self._declared is not None
        frame, errors = await asyncio.to_thread(checked_output, frame, self._declared.columns)
        loaded = await self._load(frame)
        bad = {error.row: Refused(error.row, error.code, error.reason, error.column) for error in reversed(errors)}
        return replace(loaded, refused=[*loaded.refused, *bad.values()])

    async def _load(self, frame: pl.DataFrame) -> Loaded:
        assert self._transaction is not None
        load = replace(self.how, untouched=self._untouched(frame))
        if frame.is_empty():
            return Loaded()
        if self.into is not None:
            staged = Load(self.into, [*load.columns, ROW_COLUMN], (), Mode.INSERT, direct=True)
            return await self._transaction.load(staged, frame)
        if self._waits:
            return await self._load_what_can_be(load, frame)
        if self.dry_run:
            wiped = self.fixed if load.mode is Mode.REPLACE else None
            return await self._transaction.dry_run(load, frame, wiped=wiped)
        if self.in_place:
            load = replace(load, replaces=self.replacing.replaces)
        return await self._transaction.load(load, frame)

    async def _load_what_can_be(self, load: Load, frame: pl.DataFrame) -> Loaded:
        """Load the rows except those that may refer to rows of other chunks; in a dry run, all rows wait."""
        import polars as pl

        assert self._transaction is not None
        wanted = frame.select(ROW_COLUMN.name, *(column.name for column in load.columns))
        if self.dry_run:
            self._waiting.append(wanted)
            return Loaded()
        loaded = await self._transaction.load(replace(load, later=True), frame)
        early = [refused.row for refused in loaded.refused if refused.code == FOREIGN_KEY]
        if not early:
            return loaded
        self._waiting.append(wanted.filter(pl.col(ROW_COLUMN.name).is_in(early)))
        return replace(loaded, refused=[refused for refused in loaded.refused if refused.code != FOREIGN_KEY])

    @property
    def how(self) -> Load:
        """How rows are loaded into the table."""
        declared = self._declared
        assert declared is not None
        return Load(
            declared.into,
            declared.columns,
            declared.key,
            declared.mode,
            untouched=self._untouched(None),
            unwatched=declared.provenance or (),
            direct=self.direct or declared.mode is Mode.REPLACE,
            sample=SAMPLE_ROWS if self.dry_run else 0,
        )

    @property
    def replacing(self) -> Load:
        """The same, with the rows of this import replacing those that existed before."""
        return replace(self.how, replaces=Replaces(self.id, self.fixed))

    def _untouched(self, frame: pl.DataFrame | None) -> list[str]:
        """Return the columns missing in the file: existing rows keep their values, unless a hook has set new ones."""
        assert self._declared is not None
        made = self._declared.importer.hooked
        return [
            column.name
            for column in self._declared.columns
            if column.name in self.absent
            and (not made or (frame is not None and frame[column.name].null_count() == frame.height))
        ]

    def check(self) -> None:
        """Raise now what the chunks would raise: no company, missing constants, or values that are not JSON."""
        _ = self.fixed
        try:
            orjson.dumps(self.values)
        except TypeError as error:
            raise ImportFault(
                f"importer {self.type!r}: run.values must be JSON ({error}): prepare() must set texts, numbers, lists "
                f"and dicts"
            ) from error

    @property
    def fixed(self) -> dict[str, Any]:
        """The columns with the same value in all rows: the company and the constants; raises if one is missing."""
        declared = self._declared
        assert declared is not None
        made: dict[str, Any] = {}
        if declared.company is not None:
            made[declared.company] = self.company_id
            if self.company_id is None:
                raise FileRefused(
                    f"imports of {self.type!r} belong to a company: name it (companyId, --company)",
                    code="company_required",
                )
        for name in declared.constants:
            if name not in self.values:
                raise ImportFault(f"importer {self.type!r}: prepare() must set run.values[{name!r}]")
            made[name] = self.values[name]
        return made


_MISTAKES = (
    *(LookupError, TypeError, AttributeError, NameError, ValueError, AssertionError, ArithmeticError),
    *(ImportError, NotImplementedError, SyntaxError, RecursionError),
)
_REFUSED = ("22", "23", "42", "54")  # classes of SQLSTATE: values and statements that would be refused again
_MEANWHILE = ("23505", "42P07", "42710")  # exceptions: another transaction may have added the same row, table, object


@contextmanager
def in_hook(run: Run, name: str) -> Iterator[None]:
    """Raise ImportFault, which is not retried, for a programming error in a hook.

    Errors that may be temporary (OSError, an error of a service, RuntimeError) and Rowlock's own pass through.
    """
    try:
        yield
    except RowlockError:
        raise
    except Exception as error:
        declared = run._declared
        assert declared is not None
        ours = getattr(type(declared.importer), name) is getattr(Importer, name)
        if ours or isinstance(error, OSError) or not _is_mistake(error):
            raise
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"  # the next lines may quote rows
        raise ImportFault(
            f"importer {run.type!r}: {name}() failed: {said}; correct it, restart the workers and resume the import"
        ) from error


def _is_mistake(error: Exception) -> bool:
    sqlstate = getattr(error, "sqlstate", None)  # hooks get asyncpg's errors untranslated
    if isinstance(sqlstate, str):
        return sqlstate.startswith(_REFUSED) and sqlstate not in _MEANWHILE
    return isinstance(error, _MISTAKES) or type(error).__module__.startswith("polars.")


async def hooked(name: str, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Call a hook and return its frame. A plain function may compute for long, so it runs in a thread."""
    assert run._declared is not None
    hook: Hook = getattr(run._declared.importer, name)
    with in_hook(run, name):
        made = hook(frame, run) if iscoroutinefunction(hook) else await asyncio.to_thread(hook, frame, run)
        return await made if isawaitable(made) else made


def run_of(record: ImportRecord, declared: ImportType, store: Store, **more: Any) -> Run:
    """Return the run of an import, from its record."""
    meta, options = loads(record.meta), loads(record.options)
    return Run(
        record.id,
        record.type,
        record.file_name,
        record.company_id or (declared.importer.default_company if declared.company else None),
        record.project_id,
        record.user_id,
        bool(options.get("dryRun")),
        dict(meta.get("values", {})),
        direct=bool(meta.get("direct")),
        _waits="chunk" in more and bool(meta.get("waits")),
        in_place=bool(meta.get("inPlace")),
        absent=frozenset(field.name for field in declared.fields) - set(meta.get("columns", {})),
        _declared=declared,
        _store=store,
        **more,
    )

"""What the hooks of an importer get: which import this is, what `prepare` found, and ways to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from rowlock.errors import FileRefused, ImportFault
from rowlock.imports.importer import ImportType
from rowlock.jobs.payload import loads
from rowlock.storage.base import Store, StoreTransaction
from rowlock.storage.imports import ImportRecord, RowError
from rowlock.storage.tables import Column, Kind, Load, Loaded, Mode

if TYPE_CHECKING:
    import polars as pl

SAMPLE_ROWS = 20
ROW_COLUMN = Column("row", Kind.INTEGER)


@dataclass(slots=True)
class Run:
    """One import, as the hooks see it."""

    id: str
    type: str
    file_name: str
    company_id: str | None
    project_id: str | None
    user_id: str | None
    dry_run: bool
    values: dict[str, Any]
    """What `prepare` hands to all chunks: JSON. Those named in `constants` become columns."""
    chunk: int | None = None
    rejected: list[RowError] = field(default_factory=list)
    direct: bool = False
    absent: frozenset[str] = frozenset()  # fields that the file has no column for
    _declared: ImportType | None = None
    _store: Store | None = None
    _transaction: StoreTransaction | None = None
    into: str | None = None  # instead of the importer's table: a staging table

    def reject(self, rows: Iterable[int], reason: str, *, column: str | None = None, code: str = "rejected") -> None:
        """Refuse these rows, by their number: they are reported with this reason and not loaded."""
        self.rejected.extend(RowError(row, column, code, reason) for row in rows)

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Run a query, in the hook's transaction where it has one, in the store's own language ($1, ?, a command)."""
        if self._transaction is not None:
            return await self._transaction.fetch(query, *args)
        assert self._store is not None
        async with self._store.reading() as transaction:
            return await transaction.fetch(query, *args)

    async def execute(self, query: Any, *args: Any) -> None:
        """Run a statement in the transaction of `prepare`, `load` or `finish`: it is kept if the import's step is."""
        if self._transaction is None:
            raise ImportFault("run.execute() needs the transaction of prepare, load or finish; enrich only looks")
        await self._transaction.execute(query, *args)

    async def load(self, frame: pl.DataFrame) -> Loaded:
        """Put rows into the importer's table, as it is declared; in a dry run, see what would happen."""
        assert self._declared is not None
        assert self._transaction is not None
        load = replace(self.how, untouched=self._untouched(frame))
        if frame.is_empty():
            return Loaded()
        if self.into is not None:
            staged = Load(self.into, [*load.columns, ROW_COLUMN], (), Mode.INSERT, direct=True)
            return await self._transaction.load(staged, frame)
        if self.dry_run:
            wiped = self.fixed if load.mode is Mode.REPLACE else None
            return await self._transaction.rehearse(load, frame, wiped=wiped)
        return await self._transaction.load(load, frame)

    @property
    def how(self) -> Load:
        """How rows go into the table."""
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

    def _untouched(self, frame: pl.DataFrame | None) -> list[str]:
        """Columns that the file says nothing about: rows that exist keep what they have there, unless a hook has made
        values for them."""
        assert self._declared is not None
        made = self._declared.importer.hooked
        return [
            column.name
            for column in self._declared.columns
            if column.name in self.absent
            and (not made or (frame is not None and frame[column.name].null_count() == frame.height))
        ]

    def check(self) -> None:
        """Raise where the chunks of this import would."""
        _ = self.fixed

    @property
    def fixed(self) -> dict[str, Any]:
        """The columns that have the same value in all rows."""
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


Hook = Callable[["pl.DataFrame", Run], "pl.DataFrame | Awaitable[pl.DataFrame]"]


async def hooked(hook: Hook, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
    """What a hook makes of a frame. A plain one may compute for long; calling an async one does nothing yet."""
    made = hook(frame, run) if iscoroutinefunction(hook) else await asyncio.to_thread(hook, frame, run)
    return await made if isawaitable(made) else made


def run_of(record: ImportRecord, declared: ImportType, store: Store, **more: Any) -> Run:
    """The run of an import, as its record has it."""
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
        absent=frozenset(field.name for field in declared.fields) - set(meta.get("columns", {})),
        _declared=declared,
        _store=store,
        **more,
    )

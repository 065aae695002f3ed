"""A transaction for a handler's own writes and the settlement of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pymongo.errors import DuplicateKeyError, WriteError

from rowlock.errors import StoreError
from rowlock.storage.mongo.connection import (
    OPTIONS,
    STATEMENT_SECONDS,
    Database,
    Document,
    Scope,
    Session,
    Work,
    patiently,
)
from rowlock.storage.mongo.errors import DUPLICATE, translated_errors
from rowlock.storage.mongo.imports.import_locks import Room
from rowlock.storage.mongo.imports.import_transaction import ImportingTransaction
from rowlock.storage.mongo.jobs.enqueue import add
from rowlock.storage.mongo.jobs.settle import settle
from rowlock.storage.mongo.loading.load import Loading
from rowlock.storage.mongo.loading.wipe import wipeable
from rowlock.storage.mongo.records import Recording
from rowlock.storage.records import NewJob, Receipt, Settlement, WorkerId

T = TypeVar("T")

_LOOKS_ASIDE = frozenset({"listCollections", "listIndexes"})
_LOOKS = frozenset({"find", "aggregate", "count", "distinct", *_LOOKS_ASIDE})
ASIDE = frozenset({"create", "createIndexes", "collMod", "drop", "renameCollection", *_LOOKS_ASIDE})
"""Commands that MongoDB does not take in a transaction: they run at once and are not rolled back."""


class MongoTransaction(ImportingTransaction, Loading, Recording):
    """Runs commands in a session's transaction; with `looks`, only commands that read.

    A command is a document, as in `db.runCommand`: `{"insert": "ledger", "documents": [{"line": "paid"}]}`.
    """

    def __init__(self, scope: Scope, url: str, *, looks: bool = False, room: Room | None = None) -> None:
        self.connection: Session | None = scope.session
        self.database = scope.db
        self._scope: Scope | None = scope
        self._url = url
        self._looks = looks
        self._room = room
        self._turn = asyncio.Lock()

    async def execute(self, query: Any, *args: Any) -> None:
        await self._command(query, args)

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Return the documents of a find or an aggregate, the values of a distinct, or else the answer in a list."""
        answer = await self._command(query, args)
        if "cursor" in answer:
            return await self._run(lambda scope: _rest(scope, answer["cursor"]))
        return list(answer["values"]) if "values" in answer else [answer]

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        return not await self._run(lambda scope: settle(scope, owner, [settlement]))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        async with self._turn:
            return await self._run(lambda scope: add(scope, jobs))

    def _check(self, query: Document) -> None:
        if self._looks and not only_looks(query):
            raise StoreError("this transaction only looks: write in one of store.transaction()")

    async def _command(self, query: Any, args: tuple[Any, ...]) -> Document:
        if not isinstance(query, dict) or not query or args:
            raise TypeError(
                "on MongoDB a transaction runs commands, each a document without further arguments: "
                f'execute({{"insert": "ledger", "documents": [{{"line": "paid"}}]}}); not {str(query)[:100]!r}'
            )
        name = next(iter(query))
        self._check(query)
        if name in ASIDE:
            return await self._run(lambda scope: _at_once(scope.db, query))
        return await self._run(lambda scope: patiently(scope, lambda own: _done(own, query)))

    async def _run(self, work: Work[T]) -> T:
        if self._scope is None:
            raise StoreError("this transaction has ended: begin another with store.transaction()")
        with translated_errors(self._url):
            async with asyncio.timeout(STATEMENT_SECONDS):
                return await work(self._scope)

    async def _one(self, work: Work[T]) -> T:
        return await self._run(work)

    def end(self) -> None:
        """Detach this object: any later call raises StoreError."""
        self._scope = self.connection = None


class RecordTransaction(Recording):
    """Records and jobs in one transaction; without a replica set, each write takes effect at once."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def _one(self, work: Work[T]) -> T:
        return await work(self._scope)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        return await add(self._scope, jobs)


class TrialTransaction(MongoTransaction):
    """A transaction that is rolled back. A wipe only counts, since its deletes may be too many for a transaction."""

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        return await self._run(lambda own: wipeable(own, table, scope))


def only_looks(query: Document) -> bool:
    """Whether a command writes nothing, not even its result ($out, $merge)."""
    stages = query.get("pipeline", ())
    return next(iter(query)) in _LOOKS and not any("$out" in stage or "$merge" in stage for stage in stages)


async def _at_once(db: Database, query: Document) -> Document:
    """Run a command outside of the transaction. `renameCollection` takes names without the database."""
    if old := query.get("renameCollection"):
        query = {**query, "renameCollection": f"{db.name}.{old}", "to": f"{db.name}.{query['to']}"}
        db = db.client.admin
    answer: Document = await db.command(query, codec_options=OPTIONS)
    return answer


async def _done(scope: Scope, query: Document) -> Document:
    """Run a command and return its answer; raises for write errors, which the driver leaves in the answer."""
    answer: Document = await scope.db.command(query, session=scope.session, codec_options=OPTIONS)
    for refused in answer.get("writeErrors", ()):
        error = DuplicateKeyError if refused["code"] == DUPLICATE else WriteError
        raise error(refused.get("errmsg", "the write was refused"), refused["code"], refused)
    return answer


async def _rest(scope: Scope, cursor: Document) -> list[Document]:
    """Return all documents of an answer, fetching the batches that remain."""
    found = list(cursor["firstBatch"])
    while cursor["id"]:
        collection = cursor["ns"].partition(".")[2]
        more = {"getMore": cursor["id"], "collection": collection}
        cursor = (await scope.db.command(more, session=scope.session, codec_options=OPTIONS))["cursor"]
        found += cursor["nextBatch"]
    return found

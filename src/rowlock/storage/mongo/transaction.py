"""A transaction for a handler's own writes and the end of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from rowlock.errors import StoreError
from rowlock.storage.mongo.connection import OPTIONS, STATEMENT_SECONDS, Document, Scope, Session, Work, own_words
from rowlock.storage.mongo.enqueue import add
from rowlock.storage.mongo.importing import ImportingTransaction
from rowlock.storage.mongo.load import Loading
from rowlock.storage.mongo.settle import settle
from rowlock.storage.records import NewJob, Receipt, Settlement, WorkerId

T = TypeVar("T")

_LOOKS = frozenset({"find", "aggregate", "count", "distinct"})


class MongoTransaction(ImportingTransaction, Loading):
    """Commands in a session's transaction, or one that only looks.

    A command is a document, as in `db.runCommand`: `{"insert": "ledger", "documents": [{"line": "paid"}]}`.
    """

    def __init__(self, scope: Scope, url: str, *, looks: bool = False) -> None:
        self.connection: Session | None = scope.session
        self.database = scope.db
        self._scope: Scope | None = scope
        self._url = url
        self._looks = looks

    async def execute(self, query: Any, *args: Any) -> None:
        await self._command(query, args)

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """The documents that a find or an aggregate answers, the values of a distinct, or else the answer itself."""
        answer = await self._command(query, args)
        if "cursor" in answer:
            return await self._run(lambda scope: _rest(scope, answer["cursor"]))
        return list(answer["values"]) if "values" in answer else [answer]

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        return not await self._run(lambda scope: settle(scope, owner, [settlement]))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        return await self._run(lambda scope: add(scope, jobs))

    async def _command(self, query: Any, args: tuple[Any, ...]) -> Document:
        if not isinstance(query, dict) or not query or args:
            raise TypeError(
                "on MongoDB a transaction runs commands, each a document without further arguments: "
                f'execute({{"insert": "ledger", "documents": [{{"line": "paid"}}]}}); not {str(query)[:100]!r}'
            )
        if self._looks and next(iter(query)) not in _LOOKS:
            raise StoreError("this transaction only looks: write in one of store.transaction()")
        return await self._run(lambda scope: scope.db.command(query, session=scope.session, codec_options=OPTIONS))

    async def _run(self, work: Work[T]) -> T:
        if self._scope is None:
            raise StoreError("this transaction has ended: begin another with store.transaction()")
        with own_words(self._url):
            async with asyncio.timeout(STATEMENT_SECONDS):
                return await work(self._scope)

    def end(self) -> None:
        """Nothing runs through this object any more."""
        self._scope = self.connection = None


async def _rest(scope: Scope, cursor: Document) -> list[Document]:
    """All documents of an answer, the batches that are still to come too."""
    found = list(cursor["firstBatch"])
    while cursor["id"]:
        collection = cursor["ns"].partition(".")[2]
        more = {"getMore": cursor["id"], "collection": collection}
        cursor = (await scope.db.command(more, session=scope.session, codec_options=OPTIONS))["cursor"]
        found += cursor["nextBatch"]
    return found

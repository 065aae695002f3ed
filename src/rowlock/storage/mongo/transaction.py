"""A transaction for a handler's own writes and the end of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from pymongo.errors import DuplicateKeyError, WriteError

from rowlock.errors import StoreError
from rowlock.storage.mongo.connection import (
    OPTIONS,
    STATEMENT_SECONDS,
    Document,
    Scope,
    Session,
    Work,
    patiently,
)
from rowlock.storage.mongo.enqueue import add
from rowlock.storage.mongo.import_transaction import ImportingTransaction
from rowlock.storage.mongo.load import Loading
from rowlock.storage.mongo.settle import settle
from rowlock.storage.mongo.words import DUPLICATE, own_words
from rowlock.storage.records import NewJob, Receipt, Settlement, WorkerId

T = TypeVar("T")

_ASIDE_LOOKS = frozenset({"listCollections", "listIndexes"})
_LOOKS = frozenset({"find", "aggregate", "count", "distinct", *_ASIDE_LOOKS})
_ASIDE = frozenset({"create", "createIndexes", "collMod", *_ASIDE_LOOKS})
"""What MongoDB takes in no transaction: it is done at once, and stays."""


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
        self._turn = asyncio.Lock()

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
        async with self._turn:
            return await self._run(lambda scope: add(scope, jobs))

    async def _command(self, query: Any, args: tuple[Any, ...]) -> Document:
        if not isinstance(query, dict) or not query or args:
            raise TypeError(
                "on MongoDB a transaction runs commands, each a document without further arguments: "
                f'execute({{"insert": "ledger", "documents": [{{"line": "paid"}}]}}); not {str(query)[:100]!r}'
            )
        name = next(iter(query))
        if self._looks and name not in _LOOKS:
            raise StoreError("this transaction only looks: write in one of store.transaction()")
        if name in _ASIDE:
            return await self._run(lambda scope: scope.db.command(query, codec_options=OPTIONS))
        return await self._run(lambda scope: patiently(scope, lambda own: _done(own, query)))

    async def _run(self, work: Work[T]) -> T:
        if self._scope is None:
            raise StoreError("this transaction has ended: begin another with store.transaction()")
        with own_words(self._url):
            async with asyncio.timeout(STATEMENT_SECONDS):
                return await work(self._scope)

    def end(self) -> None:
        """Nothing runs through this object any more."""
        self._scope = self.connection = None


async def _done(scope: Scope, query: Document) -> Document:
    """The answer to a command; a write that was refused is in the answer, and the driver raises nothing for it."""
    answer: Document = await scope.db.command(query, session=scope.session, codec_options=OPTIONS)
    for refused in answer.get("writeErrors", ()):
        error = DuplicateKeyError if refused["code"] == DUPLICATE else WriteError
        raise error(refused.get("errmsg", "the write was refused"), refused["code"], refused)
    return answer


async def _rest(scope: Scope, cursor: Document) -> list[Document]:
    """All documents of an answer, the batches that are still to come too."""
    found = list(cursor["firstBatch"])
    while cursor["id"]:
        collection = cursor["ns"].partition(".")[2]
        more = {"getMore": cursor["id"], "collection": collection}
        cursor = (await scope.db.command(more, session=scope.session, codec_options=OPTIONS))["cursor"]
        found += cursor["nextBatch"]
    return found

"""The declaration of an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import IndexModel

from rowlock.storage.mongo.connection import Document


@dataclass(frozen=True, slots=True)
class Index:
    """One index. Without keys it declares only the collection, which then has just the index on `_id`."""

    collection: str
    name: str = ""
    keys: tuple[tuple[str, int], ...] = ()
    unique: bool = False
    where: Mapping[str, Any] | None = None  # partial index: only matching documents are in it
    expire_seconds: int | None = None  # the server deletes documents this long after the date in the key

    def as_document(self) -> Document:
        options: Document = {}
        if self.unique:
            options["unique"] = True
        if self.where is not None:
            options["partialFilterExpression"] = dict(self.where)
        if self.expire_seconds is not None:
            options["expireAfterSeconds"] = self.expire_seconds
        return {"collection": self.collection, "name": self.name, "keys": [list(key) for key in self.keys], **options}

    def model(self) -> IndexModel:
        options = self.as_document()
        for own in ("collection", "keys"):
            del options[own]
        return IndexModel(list(self.keys), **options)

    def is_like(self, found: Document | None) -> bool:
        """Whether the database's index of this name matches; always true without keys."""
        if not self.keys:
            return True
        if found is None or list(found["key"].items()) != list(self.keys):
            return False
        wanted = self.as_document()
        return all(
            (dict(found[name]) if name == "partialFilterExpression" and name in found else found.get(name))
            == wanted.get(name)
            for name in ("unique", "partialFilterExpression", "expireAfterSeconds")
        )

"""The oracle of MongoDB."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from pymongo.database import Database
from pymongo.errors import WriteError

from model.import_cases import Spec
from model.import_oracle import Key, Oracle, Refused, Row
from model.import_values import plain


class MongoOracle(Oracle):
    def __init__(self, database: Database[dict[str, Any]], *given: Any) -> None:
        super().__init__(*given)
        options: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
        self.database = database.with_options(codec_options=options)

    def create(self) -> None:
        for name in (self.own, self.subject):
            self.database.create_collection(name, validator={"$jsonSchema": self._schema()})
            self.database[name].create_index([(each, 1) for each in self.case.key], unique=True)
            for spec in self.case.columns:
                if spec.unique is not None:
                    self._index(name, spec)
        self.seed(self.case.before)
        if found := list(self.database[self.own].find({}, {"_id": 0})):
            self.database[self.subject].insert_many(found)

    def _schema(self) -> dict[str, Any]:
        rules = {}
        for spec in self.case.columns:
            types = [spec.type] if isinstance(spec.type, str) else list(spec.type)
            rules[spec.name] = {"bsonType": types if spec.not_null else [*types, "null"], **(spec.rule or {})}
            if spec.kind in ("date", "datetime", "time", "uuid", "json"):
                rules[spec.name]["title"] = spec.kind
        required = [spec.name for spec in self.case.columns if spec.not_null]
        return {"bsonType": "object", "properties": rules, "required": required}

    def _index(self, name: str, spec: Spec) -> None:
        more: dict[str, Any] = {}
        if spec.unique == "sparse":
            more["sparse"] = True
        elif spec.unique == "partial":
            more["partialFilterExpression"] = {spec.name: {"$gt": _LEAST[spec.kind]}}
        if self.case.folds and spec.kind == "text":
            more["collation"] = {"locale": "en", "strength": 2}
        self.database[name].create_index([(spec.name, 1)], unique=True, **more)

    def drop(self) -> None:
        for name in (self.own, self.subject):
            self.database.drop_collection(name)

    def wipe(self) -> None:
        self.database[self.own].delete_many({})

    def table(self, name: str) -> dict[Key, Row]:
        found = self.database[name].find({})
        return self.keyed([tuple(document.get(each) for each in self.names) for document in found])

    def stored(self, key: Mapping[str, Any]) -> Row | None:
        try:
            found = self.database[self.own].find_one({name: self._bound(name, key[name]) for name in self.case.key})
        except OverflowError:
            return None
        return None if found is None else tuple(found.get(name) for name in self.names)

    def write(self, values: Mapping[str, Any], wanted: Row, *, new: bool, keep: bool) -> None:
        collection = self.database[self.own]
        try:
            document = {name: self._bound(name, value) for name, value in values.items()}
            where = {name: document[name] for name in self.case.key}
            before = None if new else collection.find_one(where)
            if new:
                collection.insert_one(document)
            else:
                collection.update_one(where, {"$set": document})
        except (WriteError, OverflowError, ValueError, ArithmeticError) as error:
            raise Refused(str(error)) from error
        try:
            self.check(self.stored(values), wanted)
        except Refused:
            self._undo(where, before)
            raise
        if not keep:
            self._undo(where, before)

    def _undo(self, where: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        collection = self.database[self.own]
        if before is None:
            collection.delete_one(where)
        else:
            collection.replace_one({"_id": before["_id"]}, before)

    def _bound(self, name: str, value: Any) -> Any:
        spec = self.case.spec(name)
        types = (spec.type,) if isinstance(spec.type, str) else spec.type
        if isinstance(value, dict) and "string" not in types:
            return json.loads(plain(value))  # with its fields in order
        if value is None or (isinstance(value, bool) and "string" not in types):
            return value
        if "date" in types and isinstance(value, dt.date):
            fits = not isinstance(value, dt.datetime) or value.microsecond % 1000 == 0
            return _moment(value) if fits or len(types) == 1 else value.isoformat()
        if "binData" in types:
            return Binary.from_uuid(value)
        if spec.kind in ("integer", "decimal", "float"):
            return _number(value, types, spec)
        if isinstance(value, dt.time):
            return value.isoformat()
        return value if isinstance(value, str) else plain(value, spec.places)


def _moment(value: dt.date) -> dt.datetime:
    return value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)


def _number(value: Any, types: tuple[str, ...], spec: Spec) -> Any:
    if "string" in types:
        return plain(value, spec.places)
    if types == ("int",):
        return int(value)
    if "long" in types:
        return Int64(value)
    if "decimal" in types or "number" in types:
        return Decimal128(plain(Decimal(value), spec.places))
    return float(value)


_LEAST: dict[str, Any] = {
    "text": "",
    "integer": Int64(-(2**63)),
    "decimal": Int64(-(2**63)),
    "date": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
}

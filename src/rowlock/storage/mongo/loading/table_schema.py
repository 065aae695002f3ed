"""The user's collections as tables: their names, columns, keys and rules.

A column is a field. The validator of a collection (`$jsonSchema`) declares its columns; `create_table` adds one to the
collections that it creates. `bsonType` is what the field accepts, `title` the kind of value if that says more than the
type. In a collection without a validator every field may be written.

Names stay as they are, except for characters that MongoDB does not accept: a dollar sign and, in fields, a dot become
the wide characters that look like them; a null character becomes its symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from bson.binary import Binary
from bson.decimal128 import Decimal128
from pymongo.errors import CollectionInvalid, OperationFailure

from rowlock.errors import ImportFault, StatementRefused
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.tables import Column, FoundColumn, FoundTable, Kind

NULL = "null"

_KINDS = {
    "string": Kind.TEXT,
    "int": Kind.INTEGER,
    "long": Kind.INTEGER,
    "decimal": Kind.DECIMAL,
    "number": Kind.DECIMAL,
    "double": Kind.FLOAT,
    "bool": Kind.BOOLEAN,
    "date": Kind.DATETIME,
    "binData": Kind.UUID,
    "object": Kind.JSON,
    "array": Kind.JSON,
}
# BSON dates have milliseconds: a more precise moment is stored as ISO text.
_MADE_OF: dict[Kind, list[str]] = {
    Kind.TEXT: ["string"],
    Kind.INTEGER: ["long"],
    Kind.DECIMAL: ["decimal"],
    Kind.FLOAT: ["double"],
    Kind.BOOLEAN: ["bool"],
    Kind.DATE: ["date"],
    Kind.DATETIME: ["date", "string"],
    Kind.TIME: ["string"],
    Kind.UUID: ["string"],
    Kind.JSON: ["object", "array", "string", "bool", "int", "long", "double", "decimal"],
}
_TITLED = {Kind.DATE, Kind.DATETIME, Kind.TIME, Kind.UUID, Kind.JSON}
_PLAIN_RULE = {"bsonType", "title", "description"}
_PLAIN_SCHEMA = {"bsonType", "title", "description", "properties", "required"}
_THERE_ALREADY = 48
_FOLDS_BELOW = 3
_WIDE = str.maketrans({"$": "\uff04", ".": "\uff0e", "\0": "\u2400"})
_WIDE_NAME = str.maketrans({"$": "\uff04", "\0": "\u2400"})
_NARROW = str.maketrans({"\uff04": "$", "\uff0e": ".", "\u2400": "\0"})


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index."""

    fields: tuple[str, ...]
    where: Mapping[str, Any] | None  # partial index: only matching documents are in it
    sparse: bool
    folds: bool
    collation: Mapping[str, Any] | None

    @property
    def is_key(self) -> bool:
        """Whether it tells all rows apart, exactly as they are written."""
        return self.where is None and not self.sparse and not self.folds


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A collection, as loads need to know it."""

    name: str
    types: Mapping[str, frozenset[str]]  # by field, the types that it accepts; empty: any
    kinds: Mapping[str, Kind | None]  # by field
    required: frozenset[str]
    rules: Mapping[str, Mapping[str, Any]]  # by field, the rule of the validator
    validator: Mapping[str, Any] | None  # None: not enforced, or types and required say all of it
    indexes: Sequence[UniqueIndex]
    folds: bool

    @property
    def open(self) -> bool:
        """Whether the collection declares no fields."""
        return not self.types

    @property
    def keys(self) -> list[frozenset[str]]:
        return list(dict.fromkeys(frozenset(index.fields) for index in self.indexes if index.is_key))

    def takes_null(self, name: str) -> bool:
        types = self.types.get(name)
        return not types or NULL in types

    def nullable(self, name: str) -> bool:
        """Whether a row may lack a value here: a field that accepts no null may still be left out."""
        return name not in self.required or (bool(self.types.get(name)) and NULL in self.types[name])


def collection(name: str) -> str:
    """Return the name of a table's collection."""
    return name.translate(_WIDE_NAME)


def field(name: str) -> str:
    """Return the name of a column's field."""
    return name.translate(_WIDE)


def column(name: str) -> str:
    """Return the name of a field's column."""
    return name.translate(_NARROW)


def plain(value: Any) -> Any:
    """Return a document's value as Python's own type."""
    match value:
        case Decimal128():
            return value.to_decimal()
        case Binary() if value.subtype in (3, 4):
            return value.as_uuid(value.subtype)
        case bool() | None:
            return value
        case int():
            return int(value)
    return value


async def find_table(scope: Scope, name: str) -> TableSchema | None:
    """Return the schema of a collection, or None if it is missing; MongoDB cannot ask for it in a transaction."""
    found = [one async for one in await scope.db.list_collections(filter={"name": collection(name)})]
    if not found:
        return None
    (info,) = found
    if info["type"] != "collection":
        what = "a view" if info["type"] == "view" else f"a {info['type']} collection"
        raise ImportFault(f"{name} is {what}: rows are loaded into ordinary collections only")
    options = info["options"]
    enforced = options.get("validationLevel") != "off" and options.get("validationAction", "error") == "error"
    validator: Document = options.get("validator", {})
    schema: Document = validator.get("$jsonSchema", {})
    rules: dict[str, Document] = dict(schema.get("properties", {}))
    simple = set(validator) <= {"$jsonSchema"} and set(schema) <= _PLAIN_SCHEMA
    simple = simple and all(set(rule) <= _PLAIN_RULE for rule in rules.values())
    indexes = [one async for one in await scope[collection(name)].list_indexes()]
    return TableSchema(
        name,
        {name: frozenset(_types(rule)) for name, rule in rules.items()},
        {name: _kind(rule) for name, rule in rules.items()},
        frozenset(schema.get("required", ())) if enforced else frozenset(),
        rules,
        None if simple or not enforced else validator,
        [_unique(one) for one in indexes if one.get("unique") or (one["name"] == "_id_" and "_id" in rules)],
        _folds(options.get("collation")),
    )


async def must_have(scope: Scope, name: str, columns: Sequence[str] = ()) -> TableSchema:
    """Return the schema of a table; raises StatementRefused if the table or one of these columns is missing."""
    table_schema = await find_table(scope, name)
    if table_schema is None:
        raise StatementRefused(f"there is no table {name}")
    if missing := [each for each in columns if not table_schema.open and field(each) not in table_schema.types]:
        raise StatementRefused(f"table {name} has no column {', '.join(missing)}")
    return table_schema


async def found(scope: Scope, name: str, *, own: bool) -> FoundTable | None:
    """Return a table as importers know it, or None if it is missing; `own`: this transaction has written to it."""
    table_schema = await find_table(scope, name)
    if table_schema is None:
        return None
    first = await scope[collection(name)].find_one({}, {"_id": 1}, session=scope.session if own else None)
    columns = [
        FoundColumn(
            column(each),
            "/".join(sorted(types)) or "any",
            table_schema.kinds[each],
            table_schema.nullable(each),
            has_default=each == "_id",
            folds=table_schema.folds,
        )
        for each, types in table_schema.types.items()
    ]
    if table_schema.open:
        columns = await _seen(scope, name, table_schema)
    keys = [frozenset(map(column, key)) for key in table_schema.keys]
    return FoundTable(name, columns, keys, empty=first is None)


async def create(scope: Scope, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
    """Create a collection unless it exists; it takes effect at once, and no transaction undoes it."""
    properties = {field(each.name): _rule(each) for each in columns}
    required = [field(each.name) for each in columns if not each.nullable]
    schema: Document = {"bsonType": "object", "properties": properties} | ({"required": required} if required else {})
    validator = {"$jsonSchema": schema}
    try:
        await scope.db.create_collection(collection(name), validator=validator, check_exists=False)
    except (CollectionInvalid, OperationFailure) as error:
        if isinstance(error, OperationFailure) and error.code != _THERE_ALREADY:
            raise
        there = [one async for one in await scope.db.list_collections(filter={"name": collection(name)})]
        if not there or there[0]["options"].get("validator") != validator:
            return  # not created by Rowlock
    if key:
        await scope[collection(name)].create_index([(field(each), 1) for each in key], name="key", unique=True)


def _rule(each: Column) -> Document:
    types = _MADE_OF[each.kind]
    rule: Document = {"bsonType": [*types, NULL] if each.nullable else types}
    if each.kind in _TITLED:
        rule["title"] = each.kind.value
    return rule


def _types(rule: Mapping[str, Any]) -> Iterable[str]:
    given = rule.get("bsonType", rule.get("type", ()))
    return (given,) if isinstance(given, str) else given


def _kind(rule: Mapping[str, Any]) -> Kind | None:
    """Return the kind of values that a field accepts; None: nothing can be loaded into it."""
    if rule.get("title") in set(Kind):
        return Kind(rule["title"])
    types = [each for each in _types(rule) if each != NULL]
    if not types:
        return Kind.TEXT
    return next((_KINDS[each] for each in types if each in _KINDS), None)


def _unique(index: Mapping[str, Any]) -> UniqueIndex:
    return UniqueIndex(
        tuple(index["key"]),
        index.get("partialFilterExpression"),
        bool(index.get("sparse")),
        _folds(index.get("collation")),
        index.get("collation"),
    )


def _folds(collation: Mapping[str, Any] | None) -> bool:
    if collation is None or collation.get("locale") == "simple":
        return False
    return bool(collation.get("strength", _FOLDS_BELOW) < _FOLDS_BELOW)


async def _seen(scope: Scope, name: str, table_schema: TableSchema) -> list[FoundColumn]:
    """Return the columns of a collection without rules: the fields of its first 100 documents and of its keys."""
    kinds: dict[str, Kind | None] = {each: Kind.TEXT for key in table_schema.keys for each in key}
    async for document in scope[collection(name)].find({}, {"_id": 0}).limit(100):
        for each, value in document.items():
            if value is not None:
                kinds[each] = _kind_of(value)
    return [FoundColumn(column(each), "any", kind, True, has_default=True) for each, kind in kinds.items()]


def _kind_of(value: Any) -> Kind | None:
    match value:
        case str() | bytes():
            return Kind.TEXT if isinstance(value, str) else None
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.INTEGER
        case float():
            return Kind.FLOAT
        case Decimal128() | Decimal():
            return Kind.DECIMAL
        case UUID():
            return Kind.UUID
        case dict() | list():
            return Kind.JSON
    return Kind.DATETIME if hasattr(value, "isoformat") else None

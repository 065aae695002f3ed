"""Which checks of a pydantic model can be compiled, read from its core schema.

Anything not known here by name makes its field opaque: pydantic then validates each row. So a newer pydantic or an
unusual type costs speed, never correctness.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from rowlock.storage.tables import Kind

_ALWAYS = {"type", "ref", "metadata", "serialization"}
_BOUNDS = {"ge", "gt", "le", "lt"}
_KNOWN: dict[str, tuple[Kind, set[str]]] = {
    "str": (Kind.TEXT, {"min_length", "max_length", "pattern", "strip_whitespace", "to_lower", "to_upper", "strict"}),
    "int": (Kind.INTEGER, _BOUNDS | {"multiple_of", "strict"}),
    "decimal": (Kind.DECIMAL, _BOUNDS | {"max_digits", "decimal_places", "allow_inf_nan", "strict"}),
    "float": (Kind.FLOAT, _BOUNDS | {"allow_inf_nan", "strict"}),
    "bool": (Kind.BOOLEAN, {"strict"}),
    "date": (Kind.DATE, _BOUNDS | {"strict"}),
    "datetime": (Kind.DATETIME, {"microseconds_precision", "tz_constraint", "strict"}),
    "time": (Kind.TIME, {"microseconds_precision", "strict"}),
    "uuid": (Kind.UUID, {"version"}),
    "enum": (Kind.TEXT, {"cls", "members", "sub_type"}),
    "literal": (Kind.TEXT, {"expected"}),
}
_AS_TEXT = {"url", "multi-host-url", "any", "bytes", "timedelta", "complex"}
_CONTAINERS = {"list", "tuple", "set", "frozenset", "dict", "model", "model-fields", "typed-dict", "dataclass"}
_HARMLESS_CONFIG = {"title", "extra_fields_behavior", "validate_by_name", "validate_by_alias", "populate_by_name"} | {
    "loc_by_alias", "from_attributes", "hide_input_in_errors", "validation_error_cause", "str_strip_whitespace"
}  # fmt: skip


@dataclass(slots=True)
class FieldSpec:
    """One field, as pydantic checks it."""

    kind: Kind = Kind.JSON
    nullable: bool = False
    has_default: bool = False
    default: Any = None  # unless a factory computes it for each row
    factory: bool = False
    opaque: bool = False
    raw: bool = False  # pydantic gets the cell's text unconverted, as a custom validator may expect
    container: bool = False  # the cell's text is JSON
    choices: tuple[Any, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)  # by their names in the core schema


@dataclass(slots=True)
class RowSpec:
    fields: dict[str, FieldSpec]
    rowwise: bool  # it has validators of rows, so pydantic must validate each row


def row_spec(model: type[BaseModel]) -> RowSpec:
    """Return the specification of a model's fields; raises TypeError if it cannot be the row of an import."""
    model.model_rebuild()
    schema: Mapping[str, Any] = model.__pydantic_core_schema__
    definitions: dict[str, Mapping[str, Any]] = {}
    config: dict[str, Any] = {}
    after = before = False
    while schema["type"] != "model-fields":
        match schema["type"]:
            case "definitions":
                definitions |= {one["ref"]: one for one in schema["definitions"]}
            case "definition-ref":
                schema = definitions[schema["schema_ref"]]
                continue
            case "model":
                if schema.get("root_model"):
                    raise TypeError(f"{model.__name__} is a root model: a row needs fields")
                config = dict(schema.get("config", {}))
                after = after or bool(schema.get("post_init"))
                before = before or bool(schema.get("custom_init"))
            case "function-after":
                after = True
            case _:
                before = True
        if "schema" not in schema:
            raise TypeError(f"{model.__name__} cannot be the row of an import: it is checked by a function of its own")
        schema = schema["schema"]
    if not config.get("strict", True):
        del config["strict"]
    odd = before or bool(set(config) - _HARMLESS_CONFIG)
    specs = {}
    for name, one in schema["fields"].items():
        spec = _field_spec(one["schema"], definitions, model.model_fields[name].annotation)
        spec.opaque = spec.opaque or odd
        spec.raw = spec.raw or before
        if config.get("str_strip_whitespace"):
            spec.limits.setdefault("strip_whitespace", True)
        specs[name] = spec
    return RowSpec(specs, after or before)


def _field_spec(schema: Mapping[str, Any], definitions: Mapping[str, Any], annotation: Any) -> FieldSpec:
    spec = FieldSpec()
    while True:
        kind = schema["type"]
        match kind:
            case "default":
                spec.has_default = True
                spec.factory = "default_factory" in schema
                spec.default = schema.get("default")
                known = {"schema", "default", "default_factory", "default_factory_takes_data", "copy_default"}
                if schema.get("validate_default") or schema.get("default_factory_takes_data"):
                    spec.opaque = True
                spec.opaque |= bool(set(schema) - known - _ALWAYS - {"validate_default"})
                schema = schema["schema"]
            case "nullable":
                spec.nullable = True
                schema = schema["schema"]
            case "definition-ref":
                schema = definitions[schema["schema_ref"]]
            case "function-after":
                function = schema["function"]["function"]
                spec.opaque |= not (isinstance(function, operator.attrgetter) and schema["schema"]["type"] == "enum")
                schema = schema["schema"]
            case "function-before" | "function-wrap":
                spec.opaque = spec.raw = True
                schema = schema["schema"]
            case "lax-or-strict":
                spec.opaque = True
                schema = schema["lax_schema"]
            case "json-or-python":
                spec.opaque = True
                schema = schema["python_schema"]
            case "chain":
                spec.opaque = True
                schema = schema["steps"][0]
            case "union":
                spec.opaque = True
                choices = [
                    one for one in schema["choices"] if not isinstance(one, tuple) and one["type"] != "is-instance"
                ]
                if len(choices) != 1:
                    spec.raw = True
                    return spec
                schema = choices[0]
            case _:
                return _leaf(spec, schema, annotation)


def _leaf(spec: FieldSpec, schema: Mapping[str, Any], annotation: Any) -> FieldSpec:
    kind = schema["type"]
    if kind in _KNOWN:
        spec.kind, known = _KNOWN[kind]
        spec.limits = {name: schema[name] for name in set(schema) & known if schema[name] is not None}
        spec.opaque |= bool(set(schema) - known - _ALWAYS)
        if kind in ("enum", "literal"):
            _choices(spec, [one.value for one in schema["members"]] if kind == "enum" else list(schema["expected"]))
        spec.opaque |= not _compilable(spec)
    elif kind in _CONTAINERS:
        spec.opaque = True
        spec.container = not spec.raw
    elif kind in _AS_TEXT or annotation in _PYTHON:
        spec.opaque = spec.raw = True
        spec.kind = _PYTHON.get(annotation, Kind.TEXT)
    else:
        spec.opaque = spec.raw = True
    return spec


_PYTHON: dict[Any, Kind] = {str: Kind.TEXT, int: Kind.INTEGER, float: Kind.FLOAT, bool: Kind.BOOLEAN}
"""The kinds, by annotation, of fields that a custom function validates."""


def _choices(spec: FieldSpec, values: list[Any]) -> None:
    if all(type(one) is int for one in values) or all(isinstance(one, str) for one in values):
        spec.kind = Kind.TEXT if isinstance(values[0], str) else Kind.INTEGER
        spec.choices = tuple(values)
    else:
        spec.opaque = spec.raw = True


def _compilable(spec: FieldSpec) -> bool:
    limits = spec.limits
    match spec.kind:
        case Kind.TEXT:
            # A pattern as text has passed pydantic's regex engine, as used by Polars; others are pattern objects.
            return isinstance(limits.get("pattern", ""), str)
        case Kind.INTEGER:
            bounds = [limits[name] for name in (*_BOUNDS, "multiple_of") if name in limits]
            return all(type(one) is int and abs(one) < 2**63 for one in bounds)
    return True

"""The fields of a row: the pydantic model and the declared formats of each column, as plain data."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from rowlock.imports.check.model_schema import FieldSpec, row_spec
from rowlock.imports.check.stored import stored
from rowlock.imports.formats import Formats, dump_formats, load_formats
from rowlock.storage.tables import Column, Kind

_DEFAULT = Formats()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a row. All of its values fit into JSON, which carries them to the sandbox."""

    name: str
    headers: tuple[str, ...]  # accepted names of its column, best first: name, aliases, title
    kind: Kind
    nullable: bool = False
    required: bool = True  # the file must have its column
    length_min: int | None = None
    length_max: int | None = None
    pattern: str | None = None
    strip: bool = False  # of the model, in addition to `formats.strip`
    lower: bool = False
    upper: bool = False
    ge: str | None = None
    gt: str | None = None
    le: str | None = None
    lt: str | None = None
    multiple_of: int | None = None
    digits: int | None = None
    places: int | None = None
    choices: tuple[str, ...] = ()  # the values of an enum or a Literal
    version: int | None = None  # of a UUID
    zone: str | None = None  # of a datetime: "aware" requires a zone, "naive" forbids it; None: optional, default UTC
    opaque: bool = False  # pydantic validates each row: a custom validator, or a type that cannot be compiled
    raw: bool = False  # pydantic gets the cell's text unconverted
    container: bool = False  # its cell is JSON text
    has_default: bool = False  # for an empty cell of a field that cannot be null, and for a missing column
    factory: bool = False  # the default is computed for each row
    default: str | None = None  # the default as text, unless it is computed
    secret: bool = False
    what: str | None = None  # what its values are, in plain words: "an e-mail address"
    formats: Formats = _DEFAULT
    normal: bool = False  # a key or partition field: its texts are normalised by `normal_text`


def fields_of(model: type[BaseModel], formats: Formats, overrides: Mapping[str, Formats] | None = None) -> list[Field]:
    """Return the fields of a model, in its order; `overrides` are the formats of single fields.

    Raises ValueError if an override names no field.
    """
    overrides = overrides or {}
    if unknown := set(overrides) - set(model.model_fields):
        raise ValueError(f"{model.__name__} has no field {', '.join(sorted(unknown))}")
    specs = row_spec(model).fields
    return [_field(name, info, specs[name], overrides.get(name, formats)) for name, info in model.model_fields.items()]


def column_of(field: Field) -> Column:
    """Return the column that this field is loaded into."""
    return Column(field.name, field.kind, field.nullable, field.length_max, field.digits, field.places)


def dump(fields: Sequence[Field]) -> str:
    """Return the fields as JSON."""
    return json.dumps([_plain(one) for one in fields], ensure_ascii=False)


def _plain(one: Field) -> dict[str, Any]:
    return asdict(one) | {"formats": dump_formats(one.formats)}


def load(text: str) -> list[Field]:
    """Return the fields that `dump` wrote."""
    loaded = []
    for data in json.loads(text):
        data["kind"] = Kind(data["kind"])
        data["formats"] = load_formats(data["formats"])
        data["headers"], data["choices"] = tuple(data["headers"]), tuple(data["choices"])
        loaded.append(Field(**data))
    return loaded


def _field(name: str, info: FieldInfo, spec: FieldSpec, formats: Formats) -> Field:
    limits = spec.limits
    return Field(
        name=name,
        headers=_headers(name, info),
        kind=spec.kind,
        nullable=spec.nullable,
        required=info.is_required(),
        length_min=limits.get("min_length"),
        length_max=limits.get("max_length"),
        pattern=limits["pattern"] if isinstance(limits.get("pattern"), str) else None,
        strip=bool(limits.get("strip_whitespace")),
        lower=bool(limits.get("to_lower")),
        upper=bool(limits.get("to_upper")),
        **{bound: str(limits[bound]) for bound in ("ge", "gt", "le", "lt") if bound in limits},
        multiple_of=limits.get("multiple_of"),
        digits=limits.get("max_digits"),
        places=limits.get("decimal_places"),
        choices=tuple(str(one) for one in spec.choices),
        version=limits.get("version"),
        zone=limits.get("tz_constraint"),
        opaque=spec.opaque,
        raw=spec.raw,
        container=spec.container,
        has_default=spec.has_default,
        factory=spec.factory,
        default=_default(spec),
        secret=_secret(info),
        what=info.description or _described(info.annotation),
        formats=formats,
        normal=False,
    )


def _default(spec: FieldSpec) -> str | None:
    if not spec.has_default or spec.factory or spec.default is None:
        return None
    value = stored(spec.kind, spec.default, spec.limits.get("decimal_places"), spec.limits.get("tz_constraint"))
    return (
        value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | int | float) else str(value)
    )


def _headers(name: str, info: FieldInfo) -> tuple[str, ...]:
    found: list[str] = [name]
    for alias in (info.validation_alias, info.alias, info.serialization_alias):
        for one in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, AliasPath) and len(one.path) == 1:
                found.append(str(one.path[0]))
    if info.title:
        found.append(info.title)
    return tuple(dict.fromkeys(found))


def _described(annotation: Any) -> str | None:
    """Return the description of a member type, such as `Country` in `Country | None`; None if it has none."""
    found = [extra for one in typing.get_args(annotation) for extra in getattr(one, "__metadata__", ())]
    return next((extra.description for extra in found if isinstance(extra, FieldInfo) and extra.description), None)


def _secret(info: FieldInfo) -> bool:
    extra = info.json_schema_extra
    if isinstance(extra, dict) and extra.get("secret"):
        return True
    kinds = (info.annotation, *typing.get_args(info.annotation))
    return any(isinstance(one, type) and issubclass(one, SecretStr | SecretBytes) for one in kinds)

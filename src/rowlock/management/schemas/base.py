"""The base classes of all schemas, and the field types that they share: camelCase in JSON, snake_case in Python."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializeAsAny,
    WithJsonSchema,
    create_model,
)
from pydantic.alias_generators import to_camel

from rowlock.jobs.payload import loads
from rowlock.observe.redaction import Redactor
from rowlock.settings import NAME_LENGTH_MAX
from rowlock.storage.imports import ImportStatus
from rowlock.storage.overview import REASON_LENGTH_MAX
from rowlock.storage.records import Status

EXAMPLE_ID = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
EXAMPLE_TIME = "2030-01-31T08:00:00.000Z"


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC, with milliseconds and Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _no_number(given: Any) -> Any:
    """Raise ValueError for a number: whether it counts seconds or milliseconds would be a guess."""
    try:
        float(given)
    except (TypeError, ValueError):
        return given
    raise ValueError(f"write a time as {EXAMPLE_TIME}, not as a number")


# -- of answers ------------------------------------------------------------------------------------


def inline_enum(kind: type[StrEnum]) -> WithJsonSchema:
    """Describe an enum where it is used, not by a reference."""
    return WithJsonSchema({"type": "string", "enum": [each.value for each in kind], "title": "Status"})


Time = Annotated[
    datetime,
    PlainSerializer(iso, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
StatusField = Annotated[Status, inline_enum(Status)]
ImportStatusField = Annotated[ImportStatus, inline_enum(ImportStatus)]


class Schema(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True, frozen=True, defer_build=True
    )

    def json_bytes(self) -> bytes:
        """Return the object as JSON."""
        return self.__pydantic_serializer__.to_json(self)

    def json_object(self) -> dict[str, Any]:
        """Return the object as a dictionary of plain values, with the names and times of its JSON."""
        return self.model_dump(mode="json")

    def with_(self, **fields: Any) -> Self:
        """Return a copy with other values, which are not validated."""
        return self.model_copy(update=fields)


class Envelope(Schema):
    """How the routes of administrators answer."""

    success: Literal[True] = True
    data: SerializeAsAny[Schema]

    @classmethod
    def around(cls, kind: type[Schema]) -> type[Schema]:
        """Return the schema of an envelope with this content, for the OpenAPI description."""
        name = f"{kind.__name__.removesuffix('Schema')}Envelope"
        return create_model(name, __base__=Schema, success=(Literal[True], ...), data=(kind, ...))


def plain_value(text: str | None, redact: Redactor | None) -> Any:
    """Return the value of a stored JSON text, redacted unless `redact` is None."""
    value = None if text is None else loads(text)
    return value if redact is None else redact.value(value)


def plain_text(text: str | None, redact: Redactor | None) -> str | None:
    return text if text is None or redact is None else redact.message(text)


# -- of requests -----------------------------------------------------------------------------------

Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Reason = Annotated[str, Field(max_length=REASON_LENGTH_MAX, pattern=r"^[^\x00]*$")]
Limit = Annotated[int, Field(ge=1, le=1_000)]
Cursor = Annotated[str, Field(min_length=1, max_length=200)]


class RequestSchema(BaseModel):
    """The body of a request; unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

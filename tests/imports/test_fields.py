"""Fields: the columns that a pydantic model declares, as plain data."""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    AnyUrl,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    PastDate,
    PlainValidator,
    RootModel,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from rowlock.imports.check.model_schema import row_spec
from rowlock.imports.fields import Field as Found
from rowlock.imports.fields import column_of, dump, fields_of, load
from rowlock.imports.formats import Formats
from rowlock.storage.tables import Column, Kind


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    x: int


def field(annotation: Any, **config: Any) -> Found:
    made = type("Row", (BaseModel,), {"__annotations__": {"x": annotation}, "model_config": ConfigDict(**config)})
    return fields_of(made, Formats())[0]


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, Kind.TEXT), (int, Kind.INTEGER), (Decimal, Kind.DECIMAL), (float, Kind.FLOAT), (bool, Kind.BOOLEAN),
        (dt.date, Kind.DATE), (dt.datetime, Kind.DATETIME), (dt.time, Kind.TIME), (uuid.UUID, Kind.UUID),
        (Colour, Kind.TEXT), (Literal["a", "b"], Kind.TEXT), (Literal[1, 2], Kind.INTEGER),
        (AwareDatetime, Kind.DATETIME), (int | None, Kind.INTEGER),
    ],
)  # fmt: skip
def test_common_types_are_compiled(annotation: Any, kind: Kind) -> None:
    found = field(annotation)
    assert (found.kind, found.opaque) == (kind, False)


@pytest.mark.parametrize(
    ("annotation", "kind", "raw"),
    [
        (Annotated[int, AfterValidator(abs)], Kind.INTEGER, False),
        (Annotated[int, BeforeValidator(abs)], Kind.INTEGER, True),
        (Annotated[int, PlainValidator(int)], Kind.INTEGER, True),
        (list[int], Kind.JSON, False),
        (dict[str, int], Kind.JSON, False),
        (Inner, Kind.JSON, False),
        (Json[Any], Kind.JSON, True),
        (int | str, Kind.JSON, True),
        (Any, Kind.TEXT, True),
        (AnyUrl, Kind.TEXT, True),
        (SecretStr, Kind.TEXT, False),
        (PastDate, Kind.DATE, False),
        (Literal[1, "a"], Kind.TEXT, True),
        (Annotated[Decimal, Field(multiple_of=Decimal("0.05"))], Kind.DECIMAL, False),
        (Annotated[int, Field(ge=10**30)], Kind.INTEGER, False),
        (Annotated[str, StringConstraints(pattern=re.compile("^a$"))], Kind.TEXT, False),
    ],
)
def test_what_cannot_be_compiled_is_left_to_pydantic(annotation: Any, kind: Kind, raw: bool) -> None:
    found = field(annotation)
    assert (found.opaque, found.kind, found.raw) == (True, kind, raw)


def test_settings_of_a_model_that_change_its_checks_make_it_opaque() -> None:
    assert not field(str, extra="forbid", frozen=True, title="T", str_strip_whitespace=True).opaque
    assert field(str, str_strip_whitespace=True).strip
    assert field(str, strict=True).opaque
    assert field(str, coerce_numbers_to_str=True).opaque
    assert field(str, str_max_length=3).opaque
    assert field(str, regex_engine="python-re").opaque


def test_a_pattern_with_look_around_is_left_to_pydantic() -> None:
    assert field(Annotated[str, Field(pattern=r"^(?!a).*$")], regex_engine="python-re").opaque
    assert not field(Annotated[str, Field(pattern=r"^[a-z]+$")]).opaque


def test_limits_are_kept() -> None:
    class Row(BaseModel):
        text: str = Field(min_length=1, max_length=9, pattern="^a")
        money: Decimal = Field(ge=0, lt=Decimal("1e6"), max_digits=12, decimal_places=2)
        count: int | None = Field(gt=-1, le=7, multiple_of=2)
        colour: Colour
        at: AwareDatetime
        day: dt.date = Field(ge=dt.date(2000, 1, 1))

    text, money, count, colour, at, day = fields_of(Row, Formats())
    assert (text.length_min, text.length_max, text.pattern) == (1, 9, "^a")
    assert (money.ge, money.lt, money.digits, money.places) == ("0", "1E+6", 12, 2)
    assert (count.gt, count.le, count.multiple_of, count.nullable, count.required) == ("-1", "7", 2, True, True)
    assert (colour.choices, at.zone, day.ge) == (("red", "blue"), "aware", "2000-01-01")
    assert column_of(money) == Column("money", Kind.DECIMAL, digits=12, places=2)
    assert column_of(text) == Column("text", Kind.TEXT, length_max=9)
    assert column_of(count).nullable


def test_defaults_are_kept_as_text() -> None:
    class Row(BaseModel):
        a: str = "x"
        b: Decimal = Field(Decimal("1.5"), decimal_places=2)
        c: bool = True
        d: dt.date = dt.date(2026, 1, 31)
        e: str | None = None
        f: str = Field(default_factory=str)
        g: Colour = Colour.RED
        h: int = 5

    found = fields_of(Row, Formats())
    assert [one.default for one in found] == ["x", "1.50", "true", "2026-01-31", None, None, "red", "5"]
    assert all(one.has_default and not one.required for one in found)
    assert [one.factory for one in found].index(True) == 5


def test_the_names_of_a_column_are_name_aliases_and_title() -> None:
    class Row(BaseModel):
        a: str = Field(validation_alias=AliasChoices("b", AliasPath("c"), AliasPath("d", 0)), title="The A")
        e: str = Field(alias="ee")

    found = fields_of(Row, Formats())
    assert [one.headers for one in found] == [("a", "b", "c", "The A"), ("e", "ee")]


def test_secrets_are_known_by_type_or_by_word() -> None:
    class Row(BaseModel):
        a: SecretStr
        b: SecretStr | None = None
        c: str = Field(json_schema_extra={"secret": True})
        d: str

    assert [one.secret for one in fields_of(Row, Formats())] == [True, True, True, False]


def test_validators_of_rows_make_pydantic_see_each_row() -> None:
    class After(BaseModel):
        x: int

        @model_validator(mode="after")
        def look(self) -> After:
            return self

    class Before(BaseModel):
        x: int

        @model_validator(mode="before")
        @classmethod
        def look(cls, data: Any) -> Any:
            return data

    class OfField(BaseModel):
        x: int
        y: int

        @field_validator("x")
        @classmethod
        def look(cls, value: int) -> int:
            return value

    assert row_spec(After).rowwise
    assert not fields_of(After, Formats())[0].opaque
    assert row_spec(Before).rowwise
    assert fields_of(Before, Formats())[0].opaque
    assert not row_spec(OfField).rowwise
    assert [one.opaque for one in fields_of(OfField, Formats())] == [True, False]


def test_a_root_model_is_no_row() -> None:
    with pytest.raises(TypeError, match="root model"):
        fields_of(RootModel[int], Formats())


def test_fields_go_to_another_process_as_json() -> None:
    class Row(BaseModel):
        a: Decimal | None = Field(None, ge=Decimal("0.5"), decimal_places=2)
        b: Colour = Colour.BLUE
        c: str = Field(pattern="^ä+$", alias="Ä")

    formats = Formats(decimal=",", thousands=".", dates=("day_first",), true_words=("ja",), false_words=("nein",))
    found = fields_of(Row, formats, {"b": Formats(blank_words=("-",))})
    assert load(dump(found)) == found
    assert [one.formats.decimal for one in found] == [",", ".", ","]
    assert all(one["formats"] for one in json.loads(dump(found)))


def test_formats_of_a_field_that_is_not_there_are_an_error() -> None:
    with pytest.raises(ValueError, match="has no field zzz"):
        fields_of(Inner, Formats(), {"zzz": Formats()})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"decimal": ";"}, "decimal must be"),
        ({"thousands": "_"}, "thousands must be"),
        ({"decimal": ",", "thousands": ","}, "cannot both be"),
        ({"dates": ("day_first", "month_first")}, "declare one"),
        ({"dates": ("sometimes",)}, "dates may contain"),
        ({"dates": "day_first"}, "tuple"),
        ({"true_words": ("x",), "false_words": ("X",)}, "both yes and no"),
        ({"currency": ("5",)}, "currency sign"),
    ],
)
def test_formats_that_leave_a_choice_or_make_no_sense_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Formats(**wrong)

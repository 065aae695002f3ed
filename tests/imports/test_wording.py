"""Field help: one sentence that describes the accepted values of a column."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field, create_model

from rowlock.imports.field_help import accepts
from rowlock.imports.fields import fields_of
from rowlock.imports.formats import Formats

GERMAN = Formats(decimal=",", thousands=".", dates=("day_first",), true_words=("ja",), false_words=("nein",))
DOLLARS = Formats(thousands=",", currency=("$", "USD"), dates=("month_first",), blank_words=("N/A", "-"))
Country = Annotated[str, Field(pattern="^[A-Z]{2}$", description="a country's code of two letters")]


@pytest.mark.parametrize(
    ("type", "formats", "words"),
    [
        (str, Formats(), "text"),
        (Annotated[str, Field(max_length=1_200)], Formats(), "text; at most 1,200 characters"),
        (Annotated[str, Field(pattern="^x$")], Formats(), "text; must match the pattern ^x$"),
        (Country, Formats(), "a country's code of two letters"),
        (Country | None, Formats(), "a country's code of two letters; may be empty"),
        (int, Formats(), "a whole number, such as 1234"),
        (Annotated[int, Field(ge=1, lt=10)], GERMAN, "a whole number, such as 1.234; at least 1; less than 10"),
        (
            Annotated[Decimal, Field(decimal_places=2)],
            GERMAN,
            "a number, such as 1.234,50; at most 2 decimal places",
        ),
        (float, DOLLARS, "a number, such as 1,234.50 or $1,234.50; these also mean empty: N/A or -"),
        (float, Formats(currency=("EUR",)), "a number, such as 1234.50 or EUR 1234.50"),
        (bool, GERMAN, "yes: ja; no: nein"),
        (bool, Formats(true_words=("true", "yes", "y")), "yes: true, yes or y; no: false"),
        (date, GERMAN, "a date, such as 2026-01-31 or 31/01/2026"),
        (date | None, Formats(), "a date, such as 2026-01-31; may be empty"),
        (datetime, Formats(), "a date with a time, such as 2026-01-31T14:30:00"),
        (time, Formats(), "a time, such as 14:30"),
        (UUID, Formats(), "a UUID"),
        (dict[str, Any], Formats(), "JSON"),
        (Literal["red", "green"], Formats(), "one of: red, green"),
    ],
)
def test_a_column_says_what_it_takes(type: Any, formats: Formats, words: str) -> None:
    model = create_model("Row", column=(type, ...))
    (field,) = fields_of(model, formats)
    assert accepts(field) == words


def test_of_many_choices_the_first_are_named() -> None:
    many: Any = Literal[tuple(f"c{n}" for n in range(1_030))]
    model = create_model("Row", column=(many, "c0"))
    (field,) = fields_of(model, Formats())
    assert accepts(field).startswith("one of: c0, c1, ")
    assert accepts(field).endswith("c19 and 1,010 more; may be empty")

"""Column types, formats and conversions that the importers share."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AliasChoices, Field, StringConstraints

from rowlock import Formats, Importer

if TYPE_CHECKING:
    import polars as pl

DEFAULT_COMPANY = "default"

Email = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, max_length=254, pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$"),
    Field(description="an e-mail address"),
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=1_000)]
Code = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_upper=True, max_length=32, pattern=r"^\S+$"),
    Field(description="a code: letters and digits without blanks"),
]
Unit = Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True, max_length=8)]
Country = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_upper=True, pattern=r"^[A-Za-z]{2}$"),
    Field(description="a country's code of two letters, such as US"),
]
Money = Annotated[Decimal, Field(max_digits=15, decimal_places=2)]
Price = Annotated[Decimal, Field(max_digits=15, decimal_places=2, ge=0)]
Quantity = Annotated[Decimal, Field(max_digits=15, decimal_places=3)]

FORMATS = Formats(
    thousands=",",
    dates=("month_first",),
    true_words=("true", "yes", "y"),
    false_words=("false", "no", "n"),
    currency=("$", "USD"),
)


class CompanyImporter(Importer):
    """Base class of imports into tables that companies share; without a company, rows go to the default company."""

    company: ClassVar[str | None] = "company_id"
    default_company: ClassVar[str | None] = DEFAULT_COMPANY
    formats: ClassVar[Formats] = FORMATS


def headers(name: str, *others: str, default: Any = ...) -> Any:
    """Return a field that matches its own name and these headers."""
    return Field(default, validation_alias=AliasChoices(name, *others))


def cents(column: str, into: str | None = None) -> pl.Expr:
    """Convert an amount (text with two decimals) to whole cents."""
    return _without_point(column, into or f"{column}_cents")


def thousandths(column: str) -> pl.Expr:
    """Convert a quantity (text with three decimals) to whole thousandths."""
    return _without_point(column, f"{column}_thousandths")


def day(column: str) -> pl.Expr:
    """Convert a date to ISO 8601 text."""
    import polars as pl

    return pl.col(column).cast(pl.String)


def _without_point(column: str, name: str) -> pl.Expr:
    import polars as pl

    return pl.col(column).str.replace(".", "", literal=True).cast(pl.Int64).alias(name)

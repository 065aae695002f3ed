"""What the columns of many files have in common: their types, how people write them, and how tables hold them."""

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
    """An import into a table of many companies; one that names none is the default company's."""

    company: ClassVar[str | None] = "company_id"
    default_company: ClassVar[str | None] = DEFAULT_COMPANY
    formats: ClassVar[Formats] = FORMATS


def headers(name: str, *others: str, default: Any = ...) -> Any:
    """A field that is found under its own name and under these."""
    return Field(default, validation_alias=AliasChoices(name, *others))


def cents(column: str, into: str | None = None) -> pl.Expr:
    """An amount, text with two places behind the point, in whole cents."""
    return _without_point(column, into or f"{column}_cents")


def thousandths(column: str) -> pl.Expr:
    """A quantity, text with three places behind the point, in whole thousandths."""
    return _without_point(column, f"{column}_thousandths")


def day(column: str) -> pl.Expr:
    """A date as ISO 8601 text."""
    import polars as pl

    return pl.col(column).cast(pl.String)


def _without_point(column: str, name: str) -> pl.Expr:
    import polars as pl

    return pl.col(column).str.replace(".", "", literal=True).cast(pl.Int64).alias(name)

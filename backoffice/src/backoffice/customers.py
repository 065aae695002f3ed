"""Customers, keyed by e-mail address (case-insensitive)."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, StringConstraints

from backoffice.application import app
from backoffice.columns import CompanyImporter, Country, Email, Name, Price, cents, day, headers
from rowlock import Run

if TYPE_CHECKING:
    import polars as pl

Short = Annotated[str, StringConstraints(max_length=100)]


class Customer(BaseModel):
    """What file and table have in common."""

    email: Email = headers("email", "E-mail Address", "E-mail", "Mail")
    name: Name = headers("name", "Customer Name", "Full Name", "Customer")
    phone: Short | None = headers("phone", "Phone Number", "Telephone", default=None)
    street: Name | None = headers("street", "Street Address", "Address", default=None)
    city: Short | None = headers("city", "Town", default=None)
    postcode: Short | None = headers("postcode", "Postal Code", "ZIP Code", "ZIP", default=None)
    country: Country | None = headers("country", "Country Code", default=None)
    newsletter: bool | None = headers("newsletter", "Wants Newsletter", default=None)


class CustomerRow(Customer):
    """A row of a file of customers."""

    credit_limit: Price | None = headers("credit_limit", "creditLimit", "Credit Limit", default=None)
    created_on: date | None = headers("created_on", "Customer Since", "Created On", "createdAt", default=None)


class StoredCustomer(Customer):
    """A row of the table `customers`."""

    credit_limit_cents: int | None
    created_on: str | None


@app.importer("customers")
class Customers(CompanyImporter):
    """Customers: insert those who are new, update those who have changed."""

    row = CustomerRow
    stored = StoredCustomer
    key = ("email",)
    into = "customers"

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(cents("credit_limit"), day("created_on"))

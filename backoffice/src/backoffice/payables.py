"""Accounts payable, keyed by invoice number."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, StringConstraints

from backoffice.application import app
from backoffice.columns import CompanyImporter, Money, Name, cents, day, headers
from rowlock import Run

if TYPE_CHECKING:
    import polars as pl

UNCATEGORIZED = "uncategorized"

# Text, not a number: 0012 and 12 are different invoices.
InvoiceNumber = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


class Payable(BaseModel):
    """What file and table have in common."""

    invoice_number: InvoiceNumber = headers("invoice_number", "invoiceNumber", "Invoice No", "Invoice #", "Invoice")
    vendor: Name = headers("vendor", "Vendor Name", "Supplier", "Payee")
    category: Name = headers("category", "Expense Category", "Account", default=UNCATEGORIZED)


class PayableRow(Payable):
    """A row of a file of payables; a credit note has a negative amount."""

    amount: Money = headers("amount", "Invoice Amount", "Amount Due", "Total")
    issued_on: date = headers("issued_on", "Invoice Date", "invoiceDate", "Issue Date", "Issued")
    due_on: date | None = headers("due_on", "Due Date", "dueDate", "Due", default=None)
    paid_on: date | None = headers("paid_on", "Paid On", "Payment Date", "paidDate", "Paid", default=None)


class StoredPayable(Payable):
    """A row of the table `accounts_payable`."""

    amount_cents: int
    issued_on: str
    due_on: str
    paid_on: str | None


@app.importer("ap")
class Payables(CompanyImporter):
    """Payables: insert those that are new, update those that have changed."""

    row = PayableRow
    stored = StoredPayable
    key = ("invoice_number",)
    into = "accounts_payable"

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        import polars as pl

        due = pl.coalesce(pl.col("due_on"), pl.col("issued_on"))  # no due date: due on receipt
        frame = frame.with_columns(due.alias("due_on"))
        return frame.with_columns(cents("amount"), day("issued_on"), day("due_on"), day("paid_on"))

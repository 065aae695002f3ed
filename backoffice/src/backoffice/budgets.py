"""Budgets, keyed by year, category and department."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from backoffice.application import app
from backoffice.columns import CompanyImporter, Money, Name, cents, headers
from rowlock import Run

if TYPE_CHECKING:
    import polars as pl

Year = Annotated[int, Field(ge=1_900, le=2_200)]


class Budget(BaseModel):
    """What file and table have in common."""

    year: Year = headers("year", "Fiscal Year", "Budget Year")
    category: Name = headers("category", "Expense Category", "Account")
    department: Name = headers("department", "Department Name", "Dept", "Cost Center")


class BudgetRow(Budget):
    """A row of a file of budgets."""

    amount: Money = headers("amount", "Budget", "Budget Amount", "Annual Budget", "Forecast")


class StoredBudget(Budget):
    """A row of the table `budgets`."""

    amount_cents: int


@app.importer("budgetForecast")
class BudgetForecast(CompanyImporter):
    """Budgets: insert those that are new, update those that have changed."""

    row = BudgetRow
    stored = StoredBudget
    key = ("year", "category", "department")
    into = "budgets"

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(cents("amount"))

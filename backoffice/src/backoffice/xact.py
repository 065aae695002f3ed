"""Project estimates: exported lines, and the components that they need."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import BaseModel, Field

from backoffice.application import app
from backoffice.columns import (
    Code,
    CompanyImporter,
    Money,
    Name,
    Price,
    Quantity,
    Text,
    Unit,
    cents,
    day,
    headers,
    thousandths,
)
from rowlock import Mode, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

DEFAULT_PROJECT = "default"

LineNumber = Annotated[int, Field(ge=1, le=1_000_000_000)]


class _OfProject(CompanyImporter):
    """Base class of imports into a project; an import without a project goes to the default project."""

    constants: ClassVar[Sequence[str]] = ("project_id",)

    async def prepare(self, run: Run) -> None:
        run.values["project_id"] = run.project_id or DEFAULT_PROJECT


class Line(BaseModel):
    """What file and table have in common."""

    line_number: LineNumber = headers("line_number", "#", "Line", "Line Number")
    group_code: Name | None = headers("group_code", "Group Code", default=None)
    group_description: Text | None = headers("group_description", "Group Description", "Room", default=None)
    cat: Code = headers("cat", "Category")
    sel: Code = headers("sel", "Selector")
    activity: Code | None = headers("activity", "Act", default=None)
    description: Text = headers("description", "Desc", default="")
    unit: Unit | None = headers("unit", "UOM", default=None)
    note: Text | None = headers("note", "Note 1", "Notes", default=None)


class LineRow(Line):
    """A row of an export; amounts may be negative: credits."""

    quantity: Quantity = headers("quantity", "Qty")
    unit_cost: Money = headers("unit_cost", "Unit Cost", "Unit Price")
    item_amount: Money = headers("item_amount", "Item Amount", "Amount", "Total")
    sales_tax: Money | None = headers("sales_tax", "Sales Tax", "Tax", default=None)
    entered_on: date | None = headers("entered_on", "Date", "Entered On", default=None)


class StoredLine(Line):
    """A row of the table `xact_raw`."""

    quantity_thousandths: int
    unit_cost_cents: int
    item_amount_cents: int
    sales_tax_cents: int | None
    entered_on: str | None


@app.importer("xactRaw")
class XactRaw(_OfProject):
    """Lines as they were exported: each is kept, with the import and row that it came from."""

    row = LineRow
    stored = StoredLine
    mode = Mode.INSERT
    into = "xact_raw"
    provenance = ("import_id", "import_row")

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        money = (cents(column) for column in ("unit_cost", "item_amount", "sales_tax"))
        return frame.with_columns(thousandths("quantity"), day("entered_on"), *money)


class Part(BaseModel):
    """What file and table have in common."""

    cat: Code = headers("cat", "Category")
    sel: Code = headers("sel", "Selector")
    component_code: Code = headers("component_code", "componentCode", "Component Code", "Component")
    description: Text = headers("description", "Component Description", "Desc", default="")
    unit: Unit | None = headers("unit", "UOM", default=None)
    taxable: bool | None = headers("taxable", "Tax", "Is Taxable", default=None)


class PartRow(Part):
    """A row of a file of a project's components."""

    quantity: Quantity = headers("quantity", "Qty")
    unit_price: Price = headers("unit_price", "Unit Price", "Price", "Unit Cost")


class StoredPart(Part):
    """A row of the table `xact_components`."""

    quantity_thousandths: int
    unit_price_cents: int


@app.importer("xactComponents")
class XactComponents(_OfProject):
    """Components of a project's estimate: insert those that are new, update those that have changed."""

    row = PartRow
    stored = StoredPart
    key = ("project_id", "cat", "sel", "component_code")
    into = "xact_components"

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(thousandths("quantity"), cents("unit_price"))

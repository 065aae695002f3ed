"""A company's active GOLDEN price list: items, keyed by category and selector, and the components of each item."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid4, uuid5

from pydantic import BaseModel

from backoffice.application import app
from backoffice.columns import (
    DEFAULT_COMPANY,
    Code,
    CompanyImporter,
    Name,
    Price,
    Quantity,
    Text,
    Unit,
    cents,
    headers,
    thousandths,
)
from backoffice.queries import add, rows
from backoffice.tables import ensure_tables
from rowlock import FileRefused, Mode, Run

if TYPE_CHECKING:
    import polars as pl

GOLDEN = "GOLDEN"


class Item(BaseModel):
    """What file and table have in common."""

    cat: Code = headers("cat", "Category")
    sel: Code = headers("sel", "Selector")
    description: Text = headers("description", "Desc", "Item Description", default="")
    unit: Unit = headers("unit", "UOM")


class ItemRow(Item):
    """A row of a price list."""

    unit_price: Price = headers("unit_price", "Unit Price", "Price", "Unit Cost")


class StoredItem(Item):
    """A row of the table `price_list_items`."""

    id: str
    unit_price_cents: int


@app.importer("priceList")
class PriceList(CompanyImporter):
    """Items of the active GOLDEN price list; a company that has none gets one."""

    row = ItemRow
    stored = StoredItem
    key = ("price_list_id", "cat", "sel")
    into = "price_list_items"
    constants = ("price_list_id",)

    async def prepare(self, run: Run) -> None:
        await ensure_tables(run)
        if await _golden(run) is None:
            # `add` is idempotent: if two imports get here at once, one of them creates the list.
            kind = {"company_id": run.company_id or DEFAULT_COMPANY, "kind": GOLDEN, "active": True}
            await add(run, "price_lists", list(kind), **kind, id=str(uuid4()), name="Golden")
        run.values["price_list_id"] = await _golden(run)

    def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        """Give each item its id, the same at every import: components refer to it."""
        import polars as pl

        price_list = run.values["price_list_id"]
        ids = [
            str(uuid5(NAMESPACE_OID, f"{price_list}\n{cat}\n{sel}"))
            for cat, sel in zip(frame["cat"], frame["sel"], strict=True)
        ]
        return frame.with_columns(pl.Series("id", ids, dtype=pl.String))

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(cents("unit_price"))


class Component(BaseModel):
    """What file and table have in common."""

    component_code: Code = headers("component_code", "componentCode", "Component Code", "Component")
    description: Text = headers("description", "Component Description", "Desc", default="")
    kind: Name | None = headers("kind", "Component Type", default=None)


class ComponentRow(Component):
    """A row of a file of components."""

    cat: Code = headers("cat", "Category")
    sel: Code = headers("sel", "Selector")
    quantity: Quantity = headers("quantity", "Qty")
    unit_cost: Price = headers("unit_cost", "Unit Cost", "unitCost", "Cost")


class StoredComponent(Component):
    """A row of the table `price_list_components`."""

    item_id: str
    quantity_thousandths: int
    unit_cost_cents: int


@app.importer("priceListComponents")
class PriceListComponents(CompanyImporter):
    """Components of the active GOLDEN price list: after an import they are exactly those of the file."""

    row = ComponentRow
    stored = StoredComponent
    mode = Mode.REPLACE
    key = ("item_id", "component_code")
    partition = ("cat", "sel", "component_code")
    into = "price_list_components"
    constants = ("price_list_id",)

    async def prepare(self, run: Run) -> None:
        await ensure_tables(run)
        found = await _golden(run)
        if found is None:
            raise FileRefused(
                "there is no active GOLDEN price list whose components these could be; import the price list first",
                code="price_list_missing",
            )
        run.values["price_list_id"] = found

    async def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        """Find the item of each component; one of an unknown item is rejected."""
        import polars as pl

        company, price_list = run.company_id or DEFAULT_COMPANY, run.values["price_list_id"]
        items = await rows(run, "price_list_items", ("cat", "sel", "id"), company_id=company, price_list_id=price_list)
        known = pl.DataFrame(items, {"cat": pl.String, "sel": pl.String, "item_id": pl.String}, orient="row")
        frame = frame.join(known, on=["cat", "sel"], how="left", maintain_order="left")
        for (cat, sel), unknown in frame.filter(pl.col("item_id").is_null()).group_by("cat", "sel"):
            run.reject(unknown["row"], f"the price list has no item {cat} {sel}", column="cat", code="unknown_item")
        return frame

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(thousandths("quantity"), cents("unit_cost"))


async def _golden(run: Run) -> str | None:
    company = run.company_id or DEFAULT_COMPANY
    found = await rows(run, "price_lists", ("id",), company_id=company, kind=GOLDEN, active=True)
    return found[0][0] if found else None

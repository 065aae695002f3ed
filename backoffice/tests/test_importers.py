"""The import types of the application: declared as the documents say, and the sample files are what they should be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from import_rig import COUNTS, MANIFEST, Desk, Row, cents, counted, day, ordered
from office_rig import Office, drop_tables

import backoffice
from backoffice.samples import rows as samples
from backoffice.tables import TABLES
from rowlock import FileRefused, Mode
from rowlock.imports.read.headers import match_headers
from rowlock.storage.contract import Store
from rowlock.storage.tables import FoundTable, Kind
from rowlock.testing import drain

TYPES = {
    # name: mode, key, strategy, table, the header of its sample file
    "customers": (Mode.UPSERT, ("email",), "customers:email-hash", "customers", samples.CUSTOMERS),
    "ap": (Mode.UPSERT, ("invoice_number",), "ap:invoice_number-hash", "accounts_payable", samples.PAYABLES),
    "budgetForecast": (
        Mode.UPSERT,
        ("year", "category", "department"),
        "budgetForecast:year-category-department-hash",
        "budgets",
        samples.BUDGETS,
    ),
    "priceList": (
        Mode.UPSERT,
        ("price_list_id", "cat", "sel"),
        "priceList:cat-sel-hash",
        "price_list_items",
        samples.ITEMS,
    ),
    "priceListComponents": (
        Mode.REPLACE,
        ("item_id", "component_code"),
        "priceListComponents:cat-sel-component_code-hash",
        "price_list_components",
        samples.COMPONENTS,
    ),
    "xactRaw": (Mode.INSERT, (), "xactRaw:rows", "xact_raw", samples.LINES),
    "xactComponents": (
        Mode.UPSERT,
        ("project_id", "cat", "sel", "component_code"),
        "xactComponents:cat-sel-component_code-hash",
        "xact_components",
        samples.PARTS,
    ),
}
HEADERS = {
    "customers": ("email", "Customer Name", "telephone", "ZIP", "creditLimit", "customerSince"),
    "ap": ("invoiceNumber", "Supplier", "category", "amount", "invoiceDate", "dueDate", "paidOn"),
    "budgetForecast": ("year", "category", "department", "amount"),
    "priceList": ("Category", "Selector", "description", "UOM", "unitPrice"),
    "priceListComponents": ("cat", "sel", "componentCode", "qty", "unitCost"),
    "xactRaw": ("Line Number", "cat", "sel", "quantity", "unitCost", "itemAmount"),
    "xactComponents": ("Cat", "Sel", "componentCode", "Quantity", "unitPrice"),
}


@pytest.fixture
async def desk(store: Store, office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    files = {"import_store": str(tmp_path / "store"), "import_manifest": str(MANIFEST)}
    monkeypatch.setattr(office.app, "settings", office.app.settings.model_copy(update=files))
    monkeypatch.setattr(
        "rowlock.jobs.worker.consumer._DRAIN_SECONDS", 0.03
    )  # a child process reads for longer than that
    await drop_tables(store)
    return Desk(office, tmp_path / "samples")


# -- declarations ----------------------------------------------------------------------------------


def test_there_are_the_types_of_the_documents() -> None:
    assert set(backoffice.app.importers) == set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_the_mode_key_partition_and_table_of_the_documents(name: str) -> None:
    mode, key, strategy, table, _ = TYPES[name]
    declared = backoffice.app.importers[name]
    assert declared.mode is mode
    assert tuple(declared.key) == (("company_id", *key) if key else ())
    assert declared.strategy == strategy
    assert declared.into == table
    assert table in TABLES


@pytest.mark.parametrize("name", TYPES)
def test_every_field_is_checked_a_column_at_a_time(name: str) -> None:
    assert [field.name for field in backoffice.app.importers[name].fields if field.opaque] == []


@pytest.mark.parametrize("name", TYPES)
def test_headers_are_found_as_people_and_as_programs_write_them(name: str) -> None:
    fields = backoffice.app.importers[name].fields
    for header in (TYPES[name][4], HEADERS[name], [field.name for field in fields]):
        match = match_headers(header, fields)
        assert (match.unknown, match.missing, match.twice) == ([], [], []), header
        assert len(match.columns) == len(header)


@pytest.mark.every_store
@pytest.mark.parametrize("name", TYPES)
async def test_the_table_is_the_same_made_by_an_import_or_by_the_application(store: Store, name: str) -> None:
    declared = backoffice.app.importers[name]
    await drop_tables(store)
    async with store.transaction() as tx:
        await tx.create_table(declared.into, declared.columns, declared.key)
        made = await tx.table(declared.into)
    await drop_tables(store)
    async with store.transaction() as tx:
        await backoffice.ensure_tables(tx)
        ensured = await tx.table(declared.into)
    assert made is not None
    assert ensured is not None
    assert set(_shape(made)) == set(_shape(ensured))
    for column, (kind, nullable) in _shape(made).items():
        other, also_nullable = _shape(ensured)[column]
        assert nullable == also_nullable, column
        assert other in (kind, Kind.TEXT), column
    assert [frozenset(declared.key)] == list(ensured.keys) == list(made.keys) or not declared.key


@pytest.mark.every_store
async def test_nobody_finds_half_of_a_table_while_several_make_them(store: Store) -> None:
    await drop_tables(store)
    made = asyncio.Event()

    async def make() -> None:
        async with store.transaction() as tx:
            await backoffice.ensure_tables(tx)

    async def look() -> set[tuple[int, int]]:
        """Numbers of columns and keys that the largest table was found with."""
        found = set()
        while True:
            over = made.is_set()
            async with store.transaction() as tx:
                table = await tx.table("xact_components")
            found |= {(len(table.columns), len(table.keys))} if table else set()
            if over:
                return found

    looks = [asyncio.create_task(look()) for _ in range(4)]
    await asyncio.gather(*(make() for _ in range(3)))
    made.set()
    assert set.union(*(await asyncio.gather(*looks))) == {(10, 1)}


def _shape(table: FoundTable) -> dict[str, tuple[Kind | None, bool]]:
    return {column.name: (column.kind, column.nullable) for column in table.columns}


# -- the good files --------------------------------------------------------------------------------


def _customers(desk: Desk) -> Iterator[Row]:
    for row in desk.csv("Customers.csv"):
        place = (row["Phone Number"] or None, row["Street"], row["City"], row["Postcode"], row["Country"].upper())
        since = day(row["Customer Since"])
        yield (row["E-mail Address"].lower(), row["Name"], *place, cents(row["Credit Limit"]), since)


def _payables(desk: Desk) -> Iterator[Row]:
    for row in desk.sheet("Accounts-Payable.xlsx", "AP Data", 1):
        days = (day(row[column]) for column in ("Invoice Date", "Due Date", "Paid On"))
        yield (row["Invoice Number"], row["Vendor"], row["Category"], cents(row["Amount"]), *days)


def _budgets(desk: Desk) -> Iterator[Row]:
    for row in desk.sheet("Budget-Forecast.xlsx", "Budget", 3):
        yield (row["Year"], row["Category"], row["Department"], cents(row["Budget"]))


def _items(desk: Desk) -> Iterator[Row]:
    for row in desk.csv("Price-List.csv"):
        yield (row["Cat"], row["Sel"], row["Desc"], row["Unit"], cents(row["Unit Price"]))


def _components(desk: Desk) -> Iterator[Row]:
    for row in desk.csv("Price-List-Components.csv"):
        words = (row["Component Code"], row["Component Description"], row["Component Type"])
        yield (*words, cents(row["Qty"], 3), cents(row["Unit Cost"]))


def _lines(desk: Desk) -> Iterator[Row]:
    for row in desk.csv("Xact-Raw.csv"):
        line = (int(row["#"]), row["Cat"], row["Sel"], cents(row["Qty"], 3))
        yield (*line, cents(row["Item Amount"]), cents(row["Sales Tax"]), row["Note 1"] or None)


def _parts(desk: Desk) -> Iterator[Row]:
    for row in desk.csv("Xact-Components.csv"):
        yield (row["Cat"], row["Sel"], row["Component Code"], cents(row["Qty"], 3), cents(row["Unit Price"]))


LOADED = {
    # file: its table, columns of it, and what they hold afterwards
    "Customers.csv": (
        "customers",
        ("email", "name", "phone", "street", "city", "postcode", "country", "credit_limit_cents", "created_on"),
        _customers,
    ),
    "Accounts-Payable.xlsx": (
        "accounts_payable",
        ("invoice_number", "vendor", "category", "amount_cents", "issued_on", "due_on", "paid_on"),
        _payables,
    ),
    "Budget-Forecast.xlsx": ("budgets", ("year", "category", "department", "amount_cents"), _budgets),
    "Price-List.csv": ("price_list_items", ("cat", "sel", "description", "unit", "unit_price_cents"), _items),
    "Price-List-Components.csv": (
        "price_list_components",
        ("component_code", "description", "kind", "quantity_thousandths", "unit_cost_cents"),
        _components,
    ),
    "Xact-Raw.csv": (
        "xact_raw",
        ("line_number", "cat", "sel", "quantity_thousandths", "item_amount_cents", "sales_tax_cents", "note"),
        _lines,
    ),
    "Xact-Components.csv": (
        "xact_components",
        ("cat", "sel", "component_code", "quantity_thousandths", "unit_price_cents"),
        _parts,
    ),
}


async def _assert_loaded(desk: Desk, name: str, company: str = "default") -> list[Row]:
    """The table holds exactly what the file says; returns its rows."""
    table, columns, wanted = LOADED[name]
    found = await desk.rows(table, *columns, company=company)
    assert found == ordered(wanted(desk)), name
    return found


@pytest.mark.every_store
async def test_every_type_is_loaded_into_its_table(desk: Desk) -> None:
    desk.samples(30, *TYPES)
    assert {desk.truth[name]["type"] for name in LOADED} == set(TYPES)
    last = "Price-List-Components.csv"  # needs the price list
    for names in ([name for name in LOADED if name != last], [last]):
        for record in await desk.run_all(*((name, {"project_id": "P1"}) for name in names)):
            assert counted(record) == (30, 30, 0, 0, 0, 0), record.file_name
    for name in LOADED:
        await _assert_loaded(desk, name)


async def test_customers_are_those_of_the_file(desk: Desk) -> None:
    desk.samples(300, "customers")
    assert await desk.told("Customers.csv") == (300, 300, 0, 0, 0, 0)
    await _assert_loaded(desk, "Customers.csv")
    wants = await desk.rows("customers", "newsletter")
    said = Counter({"yes": True, "no": False}.get(row["Newsletter"].lower()) for row in desk.csv("Customers.csv"))
    assert Counter(None if want is None else bool(want) for (want,) in wants) == said
    assert await desk.told("Customers.csv", force=True) == (300, 0, 0, 300, 0, 0)


async def test_payables_are_those_of_the_sheet_and_feed_the_snapshots(desk: Desk) -> None:
    desk.samples(200, "ap")
    assert await desk.told("Accounts-Payable.xlsx", company_id="acme") == (200, 200, 0, 0, 0, 0)
    found = await _assert_loaded(desk, "Accounts-Payable.xlsx", company="acme")
    await desk.office.run("generateMonthlySnapshots", companyId="acme")
    snapshots = await desk.office.snapshots("acme")
    assert sum(count for count, *_ in snapshots.values()) == 200
    assert sum(figures[1] for figures in snapshots.values()) == sum(row[3] for row in found)
    assert await desk.told("Accounts-Payable.xlsx", company_id="acme", force=True) == (200, 0, 0, 200, 0, 0)


async def test_a_payable_without_due_date_and_category_is_due_at_once(desk: Desk) -> None:
    desk.samples(1, "ap")
    desk.write(
        "accounts-payable-2.csv", ["invoiceNumber", "Vendor", "Amount", "Date Issued"], ["1", "V", "1", "1/2/2026"]
    )
    record = await desk.run("accounts-payable-2.csv")
    assert record.status == "FAILED", "the date's header is none of those known"
    desk.write(
        "accounts-payable-3.csv",
        ["invoiceNumber", "Vendor", "Amount", "Invoice Date"],
        *(["0012", "V", "$1,234.5", "1/31/2026"], ["12", "V", "-7", "2026-01-31"]),
    )
    assert await desk.told("accounts-payable-3.csv") == (2, 2, 0, 0, 0, 0)
    assert await desk.rows("accounts_payable", "invoice_number", "category", "amount_cents", "due_on", "paid_on") == [
        ("0012", "uncategorized", 123_450, "2026-01-31", None),
        ("12", "uncategorized", -700, "2026-01-31", None),
    ]


async def test_budgets_are_those_of_the_sheet(desk: Desk) -> None:
    desk.samples(250, "budgetForecast")
    assert await desk.told("Budget-Forecast.xlsx") == (250, 250, 0, 0, 0, 0)
    await _assert_loaded(desk, "Budget-Forecast.xlsx")
    assert await desk.told("Budget-Forecast.xlsx", force=True) == (250, 0, 0, 250, 0, 0)


async def test_a_price_list_and_its_components(desk: Desk) -> None:
    desk.samples(200, "priceList", "priceListComponents")
    assert await desk.told("Price-List.csv") == (200, 200, 0, 0, 0, 0)
    await _assert_loaded(desk, "Price-List.csv")
    ids = {(cat, sel): item for cat, sel, item in await desk.rows("price_list_items", "cat", "sel", "id")}
    assert len(set(ids.values())) == 200
    assert await desk.told("Price-List.csv", force=True) == (200, 0, 0, 200, 0, 0)

    assert await desk.told("Price-List-Components.csv") == (200, 200, 0, 0, 0, 0)
    columns = ("item_id", "component_code", "description", "kind", "quantity_thousandths", "unit_cost_cents")
    components = [
        (
            *(ids[row["Cat"], row["Sel"]], row["Component Code"], row["Component Description"], row["Component Type"]),
            *(cents(row["Qty"], 3), cents(row["Unit Cost"])),
        )
        for row in desk.csv("Price-List-Components.csv")
    ]
    assert await desk.rows("price_list_components", *columns) == ordered(iter(components))


async def test_components_are_afterwards_exactly_those_of_the_last_file(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = desk.office.app.settings.model_copy(update={"import_chunk_bytes": 1_024})
    monkeypatch.setattr(desk.office.app, "settings", small)
    desk.samples(60, "priceList", "priceListComponents")
    companies = ({"company_id": "acme"}, {"company_id": "other"})
    for name in ("Price-List.csv", "Price-List-Components.csv"):
        records = await desk.run_all(*((name, company) for company in companies))
        assert [counted(record)[:2] for record in records] == [(60, 60)] * 2
        assert min(record.total_chunks or 0 for record in records) > 1
    first, *_ = desk.csv("Price-List-Components.csv")
    lower = {name: value.lower() for name, value in first.items()}
    again = {**first, "Qty": "7.5"}
    desk.write("price-list-components-2.csv", list(first), *(list(row.values()) for row in (lower, first, again)))
    assert await desk.told("price-list-components-2.csv", company_id="acme") == (3, 1, 0, 0, 2, 0)
    columns = ("component_code", "quantity_thousandths")
    assert await desk.rows("price_list_components", *columns, company="acme") == [(first["Component Code"], 7_500)]
    assert len(await desk.rows("price_list_components", "item_id", company="other")) == 60


async def test_components_without_a_price_list_are_refused(desk: Desk) -> None:
    desk.samples(5, "priceListComponents")
    record = await desk.run("Price-List-Components.csv")
    assert record.status == "FAILED"
    assert "import the price list first" in (record.message or "")


@pytest.mark.every_store
async def test_a_rehearsed_price_list_leaves_nothing_behind(desk: Desk) -> None:
    desk.samples(5, "priceList")
    assert await desk.told("Price-List.csv", dry_run=True) == (5, 5, 0, 0, 0, 0)
    assert await desk.rows("price_list_items", "cat") == []
    assert await desk.rows("price_lists", "id") == []


async def test_lines_of_an_estimate_are_kept_as_often_as_they_come(desk: Desk) -> None:
    desk.samples(120, "xactRaw")
    assert await desk.told("Xact-Raw.csv", project_id="P1") == (120, 120, 0, 0, 0, 0)
    await _assert_loaded(desk, "Xact-Raw.csv")
    origins = await desk.rows("xact_raw", "project_id", "line_number", "import_row")
    assert {(project, row - line) for project, line, row in origins} == {("P1", 1)}
    assert await desk.told("Xact-Raw.csv", project_id="P2", force=True) == (120, 120, 0, 0, 0, 0)
    assert len(await desk.rows("xact_raw", "cat")) == 240


async def test_components_of_an_estimate_are_those_of_the_project(desk: Desk) -> None:
    desk.samples(60, "xactComponents")
    assert await desk.told("Xact-Components.csv", project_id="P1") == (60, 60, 0, 0, 0, 0)
    again, other = await desk.run_all(
        *(("Xact-Components.csv", {"project_id": project, "force": True}) for project in ("P1", "P2"))
    )
    assert counted(again) == (60, 0, 0, 60, 0, 0)
    assert counted(other) == (60, 60, 0, 0, 0, 0)
    wanted = (
        (project, row["Cat"], row["Sel"], row["Component Code"], cents(row["Qty"], 3), cents(row["Unit Price"]))
        for row in desk.csv("Xact-Components.csv")
        for project in ("P1", "P2")
    )
    columns = ("project_id", "cat", "sel", "component_code", "quantity_thousandths", "unit_price_cents")
    assert await desk.rows("xact_components", *columns) == ordered(wanted)


async def test_an_address_in_another_case_is_the_same_customer(desk: Desk) -> None:
    desk.samples(1, "customers")
    desk.write("customers-1.csv", ["E-mail Address", "Name"], ["Ann@Example.org", "Ann"], ["bob@example.org", "Bob"])
    desk.write("customers-2.csv", ["email", "Customer Name"], [" ANN@example.ORG ", "Ann"], ["BOB@example.org", "Rob"])
    assert await desk.told("customers-1.csv") == (2, 2, 0, 0, 0, 0)
    assert await desk.told("customers-2.csv") == (2, 0, 1, 1, 0, 0)
    assert await desk.rows("customers", "email", "name") == [("ann@example.org", "Ann"), ("bob@example.org", "Rob")]
    # Nobody said since when: they count from the beginning.
    await desk.office.run("generateMonthlySnapshots", companyId="default", amendedMonth="2026-01")
    assert (await desk.office.snapshots("default"))["2026-01"][-1] == 2


async def test_companies_do_not_see_each_other(desk: Desk) -> None:
    desk.samples(20, "customers")
    records = await desk.run_all(*(("Customers.csv", {"company_id": company}) for company in ("acme", "other")))
    assert [counted(record) for record in records] == [(20, 20, 0, 0, 0, 0)] * 2
    assert len(await desk.rows("customers", "email", company="acme")) == 20


# -- the bad files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
async def test_every_bad_file_ends_as_truth_says(desk: Desk, name: str) -> None:
    if name == "priceListComponents":
        desk.samples(10, "priceList")
        await desk.told("Price-List.csv")
    desk.samples(10, name)
    bad = {path: told for path, told in desk.truth.items() if path.startswith("bad/") and told["type"] == name}
    assert bad
    uploaded = {}
    for path, told in bad.items():
        if told["status"] == "REFUSED":
            with pytest.raises(FileRefused) as refused:
                await desk.upload(path)
            assert refused.value.code == told["code"], path
        else:
            uploaded[path] = await desk.upload(path)
    await drain(desk.office.app)
    for path, import_id in uploaded.items():
        told, record = bad[path], await desk.office.app.imports.get(import_id)
        assert record.status == told["status"], (path, record.error)
        if told["status"] == "FAILED":
            assert told["code"] in (record.error or ""), (path, record.error)
            continue
        c = record.counts
        assert (c.rows, c.inserted, c.updated, c.unchanged, c.duplicate, c.invalid) == tuple(
            told[count] for count in COUNTS
        ), path
        wanted = {(error["row"], error["column"], error["code"]) for error in told["errors"]}
        assert await desk.errors(record.id) == wanted, path


async def test_of_a_customer_who_is_there_twice_the_last_row_counts(desk: Desk) -> None:
    desk.samples(1, "customers")
    await desk.told("bad/Customers-duplicate-keys.csv")
    names = [name for (name,) in await desk.rows("customers", "name")]
    assert len(names) == 30
    assert sum(name.endswith(" (corrected)") for name in names) == 5


async def test_another_encoding_is_read_as_what_it_is(desk: Desk) -> None:
    desk.samples(1, "customers")
    encodings = {"windows-1252": "cp1252", "utf-16": "utf-16"}
    for record in await desk.run_all(*((f"bad/Customers-{name}.csv", {"company_id": name}) for name in encodings)):
        assert counted(record)[:2] == (30, 30)
    for name, encoding in encodings.items():
        path = desk.folder / "bad" / f"Customers-{name}.csv"
        found = {row for (row,) in await desk.rows("customers", "city", company=name)}
        text = path.read_bytes().decode(encoding)
        assert all(city in text for city in found)
        assert any(not city.isascii() for city in found)

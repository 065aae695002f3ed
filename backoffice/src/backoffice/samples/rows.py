"""Generates the rows of the sample files: any number, all keys different, the same rows for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import product

from backoffice.samples.workbook import Cell

CUSTOMERS = (
    *("E-mail Address", "Name", "Phone Number", "Street", "City", "Postcode", "Country"),
    *("Credit Limit", "Newsletter", "Customer Since"),
)
PAYABLES = ("Invoice Number", "Vendor", "Category", "Amount", "Invoice Date", "Due Date", "Paid On")
BUDGETS = ("Year", "Category", "Department", "Budget")
ITEMS = ("Cat", "Sel", "Desc", "Unit", "Unit Price")
COMPONENTS = ("Cat", "Sel", "Component Code", "Component Description", "Component Type", "Qty", "Unit Cost")
LINES = (
    *("#", "Group Code", "Group Description", "Cat", "Sel", "Act", "Desc", "Qty", "Unit", "Unit Cost", "Item Amount"),
    *("Sales Tax", "Date", "Note 1"),
)
PARTS = ("Cat", "Sel", "Component Code", "Desc", "Qty", "Unit", "Unit Price", "Taxable")

BUDGETS_MAX = 18_000  # 200 years, 9 categories, 10 departments
COMPONENTS_OF_ITEM = 4

_FIRST = ("Anna", "Bruno", "Chloé", "David", "Emília", "Farid", "Grace", "Håkon", "Inès", "Jürgen", "Kofi", "Łucja")
_LAST = ("Smith", "O'Brien", "Müller", "García", "Nowak", "Rossi", "Sørensen", "Tanaka", "Dubois", "Okafor", "Silva")
_MAIL = ("example.com", "Example.COM", "example.org", "mail.example.net")
_CITY = (
    *(("Boston", "02108", "US"), ("Köln", "50667", "DE"), ("Zürich", "8001", "CH"), ("São Paulo", "01310-100", "BR")),
    *(("Leeds", "LS1 4AP", "GB"), ("Lyon", "69001", "fr"), ("Gdańsk", "80-831", "PL")),
)
_VENDOR = ("Paper & Co", "Northwind Traders", "Łódź Metalworks", 'The "Best" Cleaners', "Contoso, Ltd.", "Fabrikam")
_CATEGORY = ("office", "travel", "rent", "software", "marketing", "utilities", "payroll", "training", "repairs")
_DEPARTMENT = ("Sales", "Finance", "Operations", "IT", "HR", "Legal", "Research", "Support", "Logistics", "Facilities")
_CAT = ("DRY", "PNT", "FCC", "CLN", "PLM", "ELE", "RFG", "DOR", "WDW", "INS", "FRM", "CAB", "TIL", "HVC")
_UNIT = ("SF", "LF", "EA", "HR", "SY")
_KIND = ("Material", "Labor", "Equipment")
_ROOM = ("Kitchen", "Living Room", "Bath 1", "Garage")
_ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_MASK = (1 << 64) - 1
_DAY = date(2024, 1, 1).toordinal()


def mixed(seed: int, number: int) -> int:
    """Return 64 pseudo-random bits, the same for the same seed and number."""
    bits = ((number + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def customers(seed: int, first: int, count: int) -> Iterator[list[str]]:
    """Yield customers as people type them: names and dates in mixed styles."""
    # There may be millions of rows: values that repeat are computed before.
    people = [
        (f"{_ascii(given)}.{_ascii(family)}.", f"{family}, {given}" if place % 8 == 0 else f"{given} {family}")
        for place, (given, family) in enumerate(product(_FIRST, _LAST))
    ]
    days = [date.fromordinal(_DAY + day) for day in range(900)]
    since = [f"{day:%m/%d/%Y}" if place % 7 == 0 else day.isoformat() for place, day in enumerate(days)]
    phones = ["", *(f"+1 555 {number:04}" for number in range(10_000))]
    streets = [f"{number} Main Street" for number in range(1, 201)]
    limits = [f"{limit:,}" for limit in range(50_000)]
    cents = [f".{cents:02}" for cents in range(100)]
    for number in range(first, first + count):
        bits = mixed(seed, number)
        start, name = people[bits % 132]
        city, postcode, country = _CITY[(bits >> 8) % 7]
        yield [
            f"{start}{number}@{_MAIL[(bits >> 11) & 3]}",
            name,
            phones[(bits >> 13) % 10_001],
            streets[(bits >> 27) % 200],
            city,
            postcode,
            country,
            limits[(bits >> 35) % 50_000] + cents[(bits >> 51) % 100] if bits & 0x1C0000000000000 else "",
            ("yes", "no", "", "Yes")[(bits >> 58) & 3],
            since[(bits >> 40) % 900],
        ]


def payables(seed: int, first: int, count: int) -> Iterator[list[Cell]]:
    for number in range(first, first + count):
        bits = mixed(seed, number)
        issued = _DAY + bits % 700
        paid = issued + (bits >> 10) % 60
        yield [
            f"{number:07}" if bits & 0x10000 else f"INV-{number:06}",
            _VENDOR[(bits >> 20) % 6],
            _CATEGORY[(bits >> 24) % 9],
            _amount((bits >> 28) % 2_000_000 - (100_000 if bits & 0x1F0000000000000 == 0 else 0)),
            date.fromordinal(issued),
            date.fromordinal(issued + 30),
            date.fromordinal(paid) if bits & 0x20000 else None,
        ]


def budgets(seed: int, first: int, count: int) -> Iterator[list[Cell]]:
    for number in range(first, first + count):
        bits = mixed(seed, number)
        rest, department = divmod(number, 10)
        rest, category = divmod(rest, 9)
        yield [2000 + rest, _CATEGORY[category], _DEPARTMENT[department], _amount((bits >> 12) % 50_000_000)]


def items(seed: int, first: int, count: int) -> Iterator[list[str]]:
    for number in range(first, first + count):
        bits = mixed(seed, number)
        cat, sel = _item(number)
        words = f'{cat} work, {(bits >> 8) % 48 + 1}" wide' if bits & 7 == 0 else f"{cat} work no. {number}"
        yield [cat, sel, words, _UNIT[(bits >> 16) % 5], _text((bits >> 20) % 90_000)]


def components(seed: int, first: int, count: int) -> Iterator[list[str]]:
    """Yield components of the first items, four for each."""
    for number in range(first, first + count):
        bits = mixed(seed, number)
        item, part = divmod(number, COMPONENTS_OF_ITEM)
        kind = _KIND[part % 3]
        row = [*_item(item), f"C{part + 1}-{kind[:3].upper()}", f"{kind} {part + 1}", kind]
        yield [*row, f"{(bits >> 8) % 20_000 / 1_000:.3f}", _text((bits >> 24) % 30_000)]


def lines(seed: int, first: int, count: int) -> Iterator[list[str]]:
    for number in range(first, first + count):
        bits = mixed(seed, number)
        quantity, cost = (bits >> 8) % 400 + 1, (bits >> 20) % 20_000
        room = _ROOM[(bits >> 2) & 3]
        yield [
            *(str(number + 1), room[:3].upper(), room, *_item((bits >> 40) % 500), "+-R&"[bits & 3]),
            *(f"Work in {room}", str(quantity), _UNIT[(bits >> 16) % 5], _text(cost), _text(quantity * cost)),
            _text(quantity * cost // 16) if bits & 8 else "",
            date.fromordinal(_DAY + (bits >> 48) % 700).isoformat(),
            "line one\nline two" if bits & 0x1F0 == 0 else "",
        ]


def parts(seed: int, first: int, count: int) -> Iterator[list[str]]:
    for number in range(first, first + count):
        bits = mixed(seed, number)
        item, part = divmod(number, 3)
        row = [*_item(item), f"X{part + 1}", f"Component {part + 1}", f"{(bits >> 8) % 9_000 / 10:.1f}"]
        yield [*row, _UNIT[(bits >> 16) % 5], _text((bits >> 24) % 30_000), ("yes", "no")[bits & 1]]


def _item(number: int) -> tuple[str, str]:
    """Return category and selector of an item."""
    rest, cat = divmod(number, len(_CAT))
    code = ""
    while rest or len(code) < 3:
        rest, place = divmod(rest, len(_ALPHABET))
        code = _ALPHABET[place] + code
    return _CAT[cat], code


def _amount(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def _text(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _ascii(name: str) -> str:
    return _PLAIN.get(name, name)


def _plain(names: Sequence[str]) -> dict[str, str]:
    """Return the names as e-mail addresses spell them."""
    table = str.maketrans("éíåèüŁøãñąćś", "eiaeuLoanacs", "'")
    return {name: name.translate(table) for name in names}


_PLAIN = _plain([*_FIRST, *_LAST])

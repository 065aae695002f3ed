"""The compiled check and pydantic, cell by cell, return the same errors and values for any input."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, StringConstraints, ValidationError, model_validator

from rowlock.imports.check.check import Checked, Checker, key_hash
from rowlock.imports.check.coerce import coerce
from rowlock.imports.check.columns import dtype_of
from rowlock.imports.check.reasons import BadCell, of_pydantic
from rowlock.imports.check.stored import stored
from rowlock.imports.fields import fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.read.source import CellKind


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Row(BaseModel):
    text: str
    code: str = Field(pattern=r"^[A-Z]\d*$", max_length=5)
    short: str = Field("none", min_length=2, max_length=4)
    lower: Annotated[str, StringConstraints(to_lower=True, strip_whitespace=True, pattern="^[^X]*$")] = ""
    whole: int
    ranged: int | None = Field(None, ge=-3, lt=1000, multiple_of=2)
    money: Decimal = Field(max_digits=8, decimal_places=2, ge=0)
    exact: Decimal | None = None
    bounded: Decimal = Field(Decimal("1.5"), gt=Decimal("-0.5"), le=Decimal("99.95"))
    digits: Decimal | None = Field(None, max_digits=4)
    real: float | None = Field(None, gt=-1e10)
    flag: bool
    off: bool = False
    day: dt.date
    late: dt.date | None = Field(None, ge=dt.date(2000, 1, 1), lt=dt.date(2100, 1, 1))
    at: dt.datetime | None = None
    aware: AwareDatetime | None = None
    local: NaiveDatetime | None = None
    clock: dt.time | None = None
    colour: Colour = Colour.RED
    level: Level | None = None
    either: Literal["a", "b"] | None = None
    ident: uuid.UUID | None = None


class Looked(Row):
    """The same with a validator of rows: pydantic sees each of them."""

    @model_validator(mode="after")
    def look(self) -> Looked:
        return self


FORMATS = [
    Formats(),
    Formats(decimal=",", thousands=".", dates=("day_first",), true_words=("ja", "1"), false_words=("nein", "0")),
    Formats(
        thousands=",", dates=("month_first", "year_first"), two_digit_years=True, currency=("$", "USD"), strip=False
    ),
    Formats(thousands="'", excel_serials=True, blank_words=("N/A", "-", "0"), currency=("€",)),
    Formats(decimal=",", thousands=" ", dates=("day_first",), two_digit_years=True, excel_serials=True),
]

FIELDS = {formats: fields_of(Row, formats) for formats in FORMATS}
CHECKERS = {(model, formats): Checker(model, FIELDS[formats]) for model in (Row, Looked) for formats in FORMATS}

_BLANK = st.sampled_from(["", "", "", "", " ", "\u00a0", "\t", "\u3000", "\u200b", "\x1f", "\n"])
_DIGITS = st.text("0123456789", min_size=0, max_size=6)
_NUMBERS = st.builds(
    lambda sign, a, g, b, p, c, e, cur: f"{cur}{sign}{a}{g}{b}{p}{c}{e}",
    st.sampled_from(["", "", "", "-", "+", "−", "--"]),
    _DIGITS,
    st.sampled_from(["", "", ",", ".", " ", "'", "’", "\u00a0", "_", "\u202f"]),
    st.one_of(st.just(""), st.text("0123456789", min_size=3, max_size=3)),
    st.sampled_from(["", ".", ",", ".", ","]),
    st.one_of(_DIGITS, st.sampled_from(["0", "00", "000", "5", "50", "95", "950"])),
    st.sampled_from(["", "", "", "e5", "E-3", "e+300", "e400", "%", " €", "$", " USD"]),
    st.sampled_from(["", "", "", "€", "$", "USD ", "-€"]),
)
_DATES = st.builds(
    lambda a, s, b, t, c, rest: f"{a}{s}{b}{t}{c}{rest}",
    st.sampled_from(["2026", "1999", "0000", "0001", "0999", "9999", "26", "70", "69", "1", "12", "31", "30"]),
    st.sampled_from(["-", "-", "/", "."]),
    st.sampled_from(["01", "02", "12", "13", "1", "31", "00"]),
    st.sampled_from(["-", "-", "/", "."]),
    st.sampled_from(["31", "28", "29", "30", "1", "01", "2026", "26", "70", "1900", "0999"]),
    st.sampled_from(
        ["", "", "", "T00:00:00", " 00:00", "T10:30", " 10:30:59", "T10:30:59.123456", "T10:30:59.1234567", "T23:59:60",
         "T24:00", "T10:00:00Z", "T00:00:00Z", "T10:00+02:00", " 00:00:00-0500", "T10:00:00.5+14:00", "T23:30:00-23:59",
         "T10:00:00+00", "T10"]
    ),
)  # fmt: skip
_SPECIAL = (
    ["", "N/A", "-", "0", "1", "true", "TRUE", "True", "tRuE", "false", "ja", "Nein", "yes", "nan", "NaN", "inf",
     "-Infinity", "0x10", "１２", "1e5", "5.", ".5", "-.5", "+5", "1_000", "12,5", "12.5", "1.000", "1,000", "1,00,000",
     "1 000", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "999999999999999999999999999999",
     "0.1", "00012", "-0", "-0.00", "99.95", "99.950", "99.96", "-0.5", "-0.4999999999999999999999",
     "99.9500000000000000001",
     "123456.78", "1234567", "123456.789", "12345", "0.12345", "0.0001", "yesterday", "46053", "60", "61", "59", "0.5",
     "46053.5", "2958465", "2958466", "2958465.99999999999999", "1769817600", "20260131",
     "10:30", "10:30:59", "10:30:59.1234567", "25:00", "9:30",
     "red", "Red", "blue", "a", "b", "c", "2", "4", "998", "1000", "-4", "-2", "A1", "A1\n", "A", "Ab", "A１", "AAAAAA",
     "\x00", "a\x00b", "a\ufffd", "ÄÖÜ", "İ", "ẞ", "ΑΣ", "xX", "X", "😀", "😀😀😀😀", "e\u0301e\u0301e\u0301",
     "6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff8b86d011b42d00c04fc964ff",
     "{6f9619ff-8b86-d011-b42d-00c04fc964ff}", "1e22", "123456789.123456789e-5", "1.7976931348623157e308", "2e308",
     "5e-324", "1e-400", "1.2345e-320", "0.10000000000000001", "0.12345678901234567891", "9007199254740993",
     "10:30:59.123456000", "2026-01-31T10:30:59.123456000"]
)  # fmt: skip
_OTHERS = st.sampled_from(_SPECIAL)
_CELLS = st.builds(
    lambda before, text, after: before + text + after,
    _BLANK,
    st.one_of(_NUMBERS, _DATES, _OTHERS, st.text(max_size=6)),
    _BLANK,
)
_SHEET_NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).removesuffix(".0")),
    st.sampled_from(
        ["5", "0", "1", "12.5", "59.970000000000006", "1e+16", "1e+300", "1e-07", "46053", "46053.75", "60"]
    ),
)
_TYPED = st.one_of(
    st.tuples(_CELLS, st.just(CellKind.TEXT)),
    st.tuples(_SHEET_NUMBERS, st.just(CellKind.NUMBER)),
    st.tuples(st.dates().map(str), st.just(CellKind.DATE)),
    st.tuples(st.datetimes().map(lambda moment: moment.isoformat()), st.just(CellKind.DATETIME)),
    st.tuples(st.times().map(lambda time: time.isoformat()), st.just(CellKind.TIME)),
    st.tuples(st.sampled_from(["true", "false"]), st.just(CellKind.BOOL)),
    st.tuples(st.sampled_from(["#DIV/0!", "#N/A"]), st.just(CellKind.ERROR)),
    st.tuples(st.just("=A1+1"), st.just(CellKind.FORMULA)),
)

GOOD = {
    "text": "x", "code": "A1", "short": "abc", "lower": "low", "whole": "5", "ranged": "4", "money": "1", "exact": "7",
    "bounded": "3", "digits": "12", "real": "1", "flag": "true", "off": "true", "day": "2026-01-31",
    "late": "2026-01-31",
    "at": "2026-01-31T10:00:00", "aware": "2026-01-31T10:00:00Z", "local": "2026-01-31T10:00:00", "clock": "10:00",
    "colour": "blue", "level": "2", "either": "a", "ident": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
}  # fmt: skip
NAMES = list(Row.model_fields)


def plain(formats: Formats, cells: dict[str, tuple[str, CellKind]]) -> tuple[Any, set[tuple[str, str]]]:
    """One row by the rules for single cells and pydantic alone: its values, or its errors."""
    given: dict[str, Any] = {}
    errors: set[tuple[str, str]] = set()
    fields = {field.name: field for field in FIELDS[formats]}
    for name, (text, kind) in cells.items():
        try:
            value = coerce(fields[name], text, kind)
        except BadCell as bad:
            errors.add((name, bad.code))
            continue
        if value is not None or fields[name].nullable:
            given[name] = value
    unread = {name for name, _ in errors}
    try:
        made = Row.model_validate(given, by_name=True, by_alias=False)
    except ValidationError as refused:
        for error in refused.errors():
            name = str(error["loc"][0])
            if name not in unread:
                errors.add((name, of_pydantic(error, secret=False)[0]))
    if errors:
        return None, errors
    return [stored(f.kind, getattr(made, n), f.places, f.zone) for n, f in fields.items()], errors


def run(
    formats: Formats, rows: list[dict[str, tuple[str, CellKind]]], *, typed: bool, model: type[Row] = Row
) -> Checked:
    data: dict[str, pl.Series] = {"row": pl.Series(range(2, 2 + len(rows)), dtype=pl.UInt32)}
    for name in rows[0]:
        data[name] = pl.Series([row[name][0] for row in rows], dtype=pl.String)
        if typed:
            data[name + "#kind"] = pl.Series([int(row[name][1]) for row in rows], dtype=pl.UInt8)
    return CHECKERS[model, formats].check(pl.DataFrame(data), {}, typed=typed, errors_max=10_000)


def agree(
    formats: Formats, rows: list[dict[str, tuple[str, CellKind]]], *, typed: bool, model: type[Row] = Row
) -> None:
    checked = run(formats, rows, typed=typed, model=model)
    good = {row[0]: list(row[1:]) for row in checked.good.iter_rows()}
    errors: dict[int, set[tuple[str | None, str]]] = {}
    for one in checked.errors:
        errors.setdefault(one.row, set()).add((one.column, one.code))
    for number, row in enumerate(rows, 2):
        values, wrong = plain(formats, row)
        assert errors.get(number, set()) == wrong, row
        assert good.get(number) == values, row
    assert checked.invalid.to_list() == sorted(errors)
    assert checked.invalid_rows + checked.good.height == len(rows)
    assert {name: kind for name, kind in checked.good.schema.items() if name != "row"} == {
        field.name: dtype_of(field) for field in FIELDS[formats]
    }


def spoiled(
    field: str, cells: Sequence[tuple[str, CellKind]], formats: Formats
) -> list[dict[str, tuple[str, CellKind]]]:
    """Rows that are good but for one field."""
    good = {name: (text, CellKind.TEXT) for name, text in GOOD.items()}
    good["flag"] = good["off"] = (formats.true_words[0], CellKind.TEXT)
    assert plain(formats, good)[1] == set()
    return [{**good, field: cell} for cell in cells]


def texts(cells: Sequence[str]) -> list[tuple[str, CellKind]]:
    return [(cell, CellKind.TEXT) for cell in cells]


@settings(suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(NAMES), cells=st.lists(_CELLS, min_size=1, max_size=12), formats=st.sampled_from(FORMATS))
def test_compiled_and_plain_agree_on_any_text(field: str, cells: list[str], formats: Formats) -> None:
    agree(formats, spoiled(field, texts(cells), formats), typed=False)


@settings(suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(NAMES), cells=st.lists(_TYPED, min_size=1, max_size=12), formats=st.sampled_from(FORMATS))
def test_compiled_and_plain_agree_on_any_typed_cell(
    field: str, cells: list[tuple[str, CellKind]], formats: Formats
) -> None:
    agree(formats, spoiled(field, cells, formats), typed=True)


@pytest.mark.parametrize("formats", FORMATS)
def test_compiled_and_plain_agree_on_every_special_text_in_every_field(formats: Formats) -> None:
    for name in NAMES:
        agree(formats, spoiled(name, texts(_SPECIAL), formats), typed=False)


@settings(suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(NAMES), cells=st.lists(_TYPED, min_size=1, max_size=12), formats=st.sampled_from(FORMATS))
def test_they_agree_too_where_pydantic_sees_each_row(
    field: str, cells: list[tuple[str, CellKind]], formats: Formats
) -> None:
    agree(formats, spoiled(field, cells, formats), typed=True, model=Looked)


@settings(suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(NAMES), cells=st.lists(_CELLS, min_size=2, max_size=20), formats=st.sampled_from(FORMATS))
def test_keys_that_become_equal_have_equal_hashes(field: str, cells: list[str], formats: Formats) -> None:
    rows = spoiled(field, texts(cells), formats)
    checked = run(formats, rows, typed=False)
    chosen = [one for one in FIELDS[formats] if one.name == field]
    hashes = key_hash(pl.DataFrame({field: cells}, schema={field: pl.String}), chosen, False)
    assert hashes.dtype == pl.UInt64
    by_row = dict(enumerate(hashes.to_list(), 2))
    seen: dict[Any, int] = {}
    for number, value in zip(checked.good["row"].to_list(), checked.good[field].to_list(), strict=True):
        assert seen.setdefault(value, by_row[number]) == by_row[number], value

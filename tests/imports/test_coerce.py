"""Single cells: the value of each text under the declared formats, and what is refused instead of guessed."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

from rowlock.imports.check.coerce import coerce
from rowlock.imports.check.numbers import read_integer
from rowlock.imports.check.reasons import CODES, BadCell
from rowlock.imports.check.stored import plain_decimal, stored
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats
from rowlock.imports.read.source import CellKind
from rowlock.storage.tables import Kind

POINT = Formats()
COMMA = Formats(decimal=",", thousands=".")
SPACED = Formats(decimal=",", thousands=" ")
SWISS = Formats(thousands="'")
ENGLISH = Formats(thousands=",")
DAY = Formats(dates=("day_first",))
MONTH = Formats(dates=("month_first",))
SHORT = Formats(dates=("day_first",), two_digit_years=True)
SERIAL = Formats(excel_serials=True)
WORDS = Formats(true_words=("yes", "ja", "1"), false_words=("no", "nein", "0"))
EURO = Formats(currency=("€", "EUR"))


def read(kind: Kind, text: str, formats: Formats = POINT, cell: CellKind = CellKind.TEXT) -> Any:
    return coerce(Field("x", ("x",), kind, formats=formats), text, cell)


def refused(kind: Kind, text: str, formats: Formats = POINT, cell: CellKind = CellKind.TEXT) -> BadCell:
    with pytest.raises(BadCell) as caught:
        read(kind, text, formats, cell)
    assert caught.value.code in CODES
    return caught.value


@pytest.mark.parametrize(
    ("text", "formats", "value"),
    [
        ("12.5", POINT, "12.5"), ("+5", POINT, "5"), (".5", POINT, "0.5"), ("-.5", POINT, "-0.5"), ("007", POINT, "7"),
        (" 5 ", POINT, "5"), ("\u00a05\u00a0", POINT, "5"), ("\u30005", POINT, "5"), ("12.50", POINT, "12.50"),
        ("12,5", COMMA, "12.5"), ("1.234,5", COMMA, "1234.5"), ("1.000", COMMA, "1000"), ("1234,5", COMMA, "1234.5"),
        ("1 234,5", SPACED, "1234.5"), ("1\u00a0234", SPACED, "1234"), ("1\u202f234", SPACED, "1234"),
        ("1'234.5", SWISS, "1234.5"), ("1’234", SWISS, "1234"), ("1,234,567.8", ENGLISH, "1234567.8"),
        ("€ 5", EURO, "5"), ("5 €", EURO, "5"), ("-€5", EURO, "-5"), ("€-5", EURO, "-5"), ("5EUR", EURO, "5"),
        ("0.1" + "0" * 50 + "1", POINT, "0.1" + "0" * 50 + "1"),
    ],
)  # fmt: skip
def test_a_decimal_is_exactly_what_is_written(text: str, formats: Formats, value: str) -> None:
    assert str(read(Kind.DECIMAL, text, formats)) == value


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ("12,5", POINT), ("1,000", POINT), ("1.234,5", POINT), ("1_000", POINT), ("5.", POINT), (".", POINT),
        ("-", POINT),
        ("1e5", POINT), ("0x10", POINT), ("１２", POINT), ("٣", POINT), ("--5", POINT), ("5-", POINT), ("(5)", POINT),
        ("5%", POINT), ("€5", POINT), ("5 5", POINT), ("1 000", POINT), ("12.5", COMMA), ("1.23", COMMA),
        ("1,5.0", COMMA),
        ("1.0000", COMMA), ("1,23,456", ENGLISH), (",234", ENGLISH), ("1,2345", ENGLISH), ("−5", POINT),
        ("5\n6", POINT),
        ("USD5", EURO), ("€", EURO), ("5\x1f", POINT), ("abc", POINT), ("1" * 1_001, POINT),
    ],
)  # fmt: skip
def test_what_is_not_declared_is_no_number(text: str, formats: Formats) -> None:
    assert refused(Kind.DECIMAL, text, formats).code == "not_a_number"
    assert refused(Kind.INTEGER, text, formats).code == "not_an_integer"


def test_a_decimal_comma_that_is_not_declared_is_refused_with_a_suggestion() -> None:
    assert refused(Kind.DECIMAL, "12,5").reason == "not a valid number: write 12.5"
    assert refused(Kind.DECIMAL, "12.5", COMMA).reason == "not a valid number: write 12,5"
    assert "write 1000 or 1.000" in refused(Kind.DECIMAL, "1,000").reason
    assert "exponent" in refused(Kind.DECIMAL, "1e5").reason


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT])
@pytest.mark.parametrize("text", ["NaN", "nan", "inf", "-inf", "Infinity", "+Infinity"])
def test_nan_and_infinity_are_refused(kind: Kind, text: str) -> None:
    assert refused(kind, text).code == "nan"


@pytest.mark.parametrize(
    ("text", "formats", "value"),
    [("5", POINT, 5), ("+5", POINT, 5), ("-0", POINT, 0), ("007", POINT, 7), ("5.0", POINT, 5), ("5.00", POINT, 5),
     ("1.000", COMMA, 1000), ("5,0", COMMA, 5), ("9223372036854775807", POINT, 2**63 - 1),
     ("-9223372036854775808", POINT, -(2**63))],
)  # fmt: skip
def test_an_integer_may_have_a_fraction_of_zeros(text: str, formats: Formats, value: int) -> None:
    assert read(Kind.INTEGER, text, formats) == value


@pytest.mark.parametrize(
    ("text", "code"),
    [("5.5", "not_an_integer"), ("1.000", "not_an_integer"), (".0", "not_an_integer"), ("1e5", "not_an_integer"),
     ("9223372036854775808", "out_of_range"), ("-9223372036854775809", "out_of_range")],
)  # fmt: skip
def test_an_integer_has_no_fraction_and_fits_64_bits(text: str, code: str) -> None:
    assert refused(Kind.INTEGER, text).code == code


@pytest.mark.parametrize(
    ("text", "value"), [("1e5", 1e5), ("-2.5E-3", -0.0025), ("0.1", 0.1), ("5e-324", 5e-324), (".5", 0.5)]
)
def test_a_float_may_have_an_exponent(text: str, value: float) -> None:
    assert read(Kind.FLOAT, text) == value


@pytest.mark.parametrize(
    "text",
    ["0.10000000000000001", "0.1000000000000000055511151231257827", "0.10000000000000000000", "9007199254740992",
     "100000000000000000000", "1.7976931348623157e308", "-12345678901234568", "0.00", "0e5"],
)  # fmt: skip
def test_a_float_keeps_the_digits_of_its_cell(text: str) -> None:
    assert read(Kind.FLOAT, text) == float(text)


@pytest.mark.parametrize(
    "text", ["9007199254740993", "1234567890.123456789", "0.12345678901234567891", "1e-400", "1.2345e-320"]
)
def test_a_float_that_would_be_rounded_is_refused(text: str) -> None:
    assert refused(Kind.FLOAT, text).code == "rounded"


@pytest.mark.parametrize(
    ("kind", "text"), [(Kind.TIME, "10:30:59.1234567"), (Kind.DATETIME, "2026-01-31T10:30:59.1234567")]
)
def test_digits_below_a_microsecond_are_refused(kind: Kind, text: str) -> None:
    assert refused(kind, text).code == "rounded"
    assert read(kind, text[:-1] + "000") == read(kind, text[:-1])


def test_a_float_that_would_be_infinite_is_out_of_range() -> None:
    assert refused(Kind.FLOAT, "1e400").code == "out_of_range"


@pytest.mark.parametrize(
    ("text", "formats", "value"),
    [("true", POINT, True), ("FALSE", POINT, False), (" True ", POINT, True), ("tRuE", POINT, True),
     ("Ja", WORDS, True), ("NEIN", WORDS, False), ("1", WORDS, True), ("0", WORDS, False)],
)  # fmt: skip
def test_the_words_for_yes_and_no_are_those_declared_in_any_case(text: str, formats: Formats, value: bool) -> None:
    assert read(Kind.BOOLEAN, text, formats) is value


@pytest.mark.parametrize(
    ("text", "formats"), [("yes", POINT), ("1", POINT), ("0", POINT), ("t", POINT), ("true", WORDS)]
)
def test_other_words_are_refused(text: str, formats: Formats) -> None:
    assert refused(Kind.BOOLEAN, text, formats).code == "not_a_yes_no"


JAN31 = dt.date(2026, 1, 31)


@pytest.mark.parametrize(
    ("text", "formats", "value"),
    [("2026-01-31", POINT, JAN31), ("2026-01-31", DAY, JAN31), ("31.01.2026", DAY, JAN31), ("31/1/2026", DAY, JAN31),
     ("31-1-2026", DAY, JAN31), ("1/31/2026", MONTH, JAN31), ("01.02.2026", DAY, dt.date(2026, 2, 1)),
     ("01/02/2026", MONTH, dt.date(2026, 1, 2)), ("31.1.26", SHORT, JAN31), ("31.1.70", SHORT, dt.date(1970, 1, 31)),
     ("31.1.69", SHORT, dt.date(2069, 1, 31)), ("2026/1/31", Formats(dates=("year_first",)), JAN31),
     ("2026-01-31T00:00:00", POINT, JAN31), ("2026-01-31 00:00", POINT, JAN31),
     ("2026-01-31T00:00:00.000Z", POINT, JAN31),
     ("46053", SERIAL, JAN31), ("46053.0", SERIAL, JAN31), ("1", SERIAL, dt.date(1900, 1, 1)),
     ("59", SERIAL, dt.date(1900, 2, 28)), ("61", SERIAL, dt.date(1900, 3, 1)), ("2958465", SERIAL, dt.date.max),
     ("2024-02-29", POINT, dt.date(2024, 2, 29)), ("0001-01-01", POINT, dt.date.min)],
)  # fmt: skip
def test_a_date_is_read_in_the_declared_orders_and_always_as_iso(text: str, formats: Formats, value: dt.date) -> None:
    assert read(Kind.DATE, text, formats) == value


@pytest.mark.parametrize(
    ("text", "formats", "code"),
    [("2026-02-30", POINT, "not_a_date"), ("2026-13-01", POINT, "not_a_date"), ("0000-01-01", POINT, "not_a_date"),
     ("yesterday", POINT, "not_a_date"), ("1769817600", POINT, "not_a_date"), ("46053", POINT, "not_a_date"),
     ("20260131", POINT, "not_a_date"), ("2026-1-31", POINT, "not_a_date"), ("31.01.2026", POINT, "not_a_date"),
     ("01/31/2026", DAY, "not_a_date"), ("31.01/2026", DAY, "not_a_date"), ("31.1.26", DAY, "not_a_date"),
     ("60", SERIAL, "not_a_date"), ("0", SERIAL, "not_a_date"), ("2958466", SERIAL, "not_a_date"),
     ("1769817600", SERIAL, "not_a_date"), ("46053.5", SERIAL, "has_a_time"), ("2026-01-31T10:00", POINT, "has_a_time"),
     ("2026-01-31T00:00+02:00", POINT, "has_a_time"), ("２０２６-01-31", POINT, "not_a_date"),
     ("29.02.2025", DAY, "not_a_date")],
)  # fmt: skip
def test_what_is_no_date_is_refused(text: str, formats: Formats, code: str) -> None:
    assert refused(Kind.DATE, text, formats).code == code


@pytest.mark.parametrize(
    ("text", "formats", "value"),
    [("2026-01-31", POINT, dt.datetime(2026, 1, 31)), ("2026-01-31T10:30", POINT, dt.datetime(2026, 1, 31, 10, 30)),
     ("2026-01-31 10:30:59.5", POINT, dt.datetime(2026, 1, 31, 10, 30, 59, 500_000)),
     ("2026-01-31T10:30:59.123456000", POINT, dt.datetime(2026, 1, 31, 10, 30, 59, 123_456)),
     ("2026-01-31T10:30:00Z", POINT, dt.datetime(2026, 1, 31, 10, 30, tzinfo=dt.UTC)),
     ("2026-01-31T10:30:00+02:00", POINT, dt.datetime(2026, 1, 31, 8, 30, tzinfo=dt.UTC)),
     ("2026-01-31T22:30-0500", POINT, dt.datetime(2026, 2, 1, 3, 30, tzinfo=dt.UTC)),
     ("31.01.2026 10:30", DAY, dt.datetime(2026, 1, 31, 10, 30)), ("46053.75", SERIAL, dt.datetime(2026, 1, 31, 18))],
)  # fmt: skip
def test_a_time_zone_is_kept_as_utc(text: str, formats: Formats, value: dt.datetime) -> None:
    found = read(Kind.DATETIME, text, formats)
    assert (found, found.tzinfo) == (value, value.tzinfo)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T24:00", "2026-01-31T10", "2026-01-31T10:30:60", "10:30", "1769817600", "2026-01-31T10:30 CET",
     "2026-01-31T9:30", "2026-01-31T10:30+25:00", "now"],
)  # fmt: skip
def test_what_is_no_datetime_is_refused(text: str) -> None:
    assert refused(Kind.DATETIME, text).code == "not_a_datetime"


def test_a_datetime_outside_of_the_calendar_is_out_of_range() -> None:
    assert refused(Kind.DATETIME, "9999-12-31T23:59:59-01:00").code == "out_of_range"


def test_times_and_uuids() -> None:
    assert read(Kind.TIME, "10:30") == dt.time(10, 30)
    assert read(Kind.TIME, "10:30:59.25") == dt.time(10, 30, 59, 250_000)
    for text in ("25:00", "9:30", "10", "10:30Z", "0.5"):
        assert refused(Kind.TIME, text).code == "not_a_time"
    made = uuid.uuid4()
    assert read(Kind.UUID, str(made).upper()) == read(Kind.UUID, made.hex) == made
    for text in ("{" + str(made) + "}", "urn:uuid:" + str(made), "x"):
        assert refused(Kind.UUID, text).code == "not_a_uuid"


def test_empty_cells_are_none_and_blank_words_are_as_declared() -> None:
    for text in ("", " ", "\u00a0\t"):
        assert read(Kind.TEXT, text) is None
    assert read(Kind.TEXT, "N/A") == "N/A"
    assert read(Kind.DECIMAL, " - ", Formats(blank_words=("-",))) is None
    assert read(Kind.TEXT, "n/a", Formats(blank_words=("N/A",))) == "n/a"
    assert read(Kind.TEXT, " a ", Formats(strip=False)) == " a "
    assert refused(Kind.DECIMAL, " 5", Formats(strip=False)).code == "not_a_number"


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "caf\ufffd"])
def test_damaged_text_is_refused_for_every_kind(text: str) -> None:
    for kind in Kind:
        assert refused(kind, text).code == "bad_text"


@pytest.mark.parametrize(
    ("kind", "text", "cell", "formats", "value"),
    [
        (Kind.TEXT, "5", CellKind.NUMBER, POINT, "5"),
        (Kind.TEXT, "2026-01-31", CellKind.DATE, DAY, "2026-01-31"),
        (Kind.DECIMAL, "12.5", CellKind.NUMBER, COMMA, Decimal("12.5")),
        (Kind.DECIMAL, "1.000", CellKind.TEXT, COMMA, Decimal(1000)),
        (Kind.DECIMAL, "1e-07", CellKind.NUMBER, POINT, Decimal("0.0000001")),
        (Kind.DECIMAL, "59.970000000000006", CellKind.NUMBER, POINT, Decimal("59.97")),
        (Kind.DECIMAL, "12345678901234567", CellKind.NUMBER, POINT, Decimal("12345678901234567")),
        (Kind.INTEGER, "10000000000000000", CellKind.NUMBER, POINT, 10**16),
        (Kind.FLOAT, "1e+300", CellKind.NUMBER, COMMA, 1e300),
        (Kind.BOOLEAN, "true", CellKind.BOOL, WORDS, True),
        (Kind.BOOLEAN, "1", CellKind.NUMBER, WORDS, True),
        (Kind.DATE, "2026-01-31", CellKind.DATE, MONTH, JAN31),
        (Kind.DATE, "2026-01-31T00:00:00", CellKind.DATETIME, POINT, JAN31),
        (Kind.DATE, "46053", CellKind.NUMBER, SERIAL, JAN31),
        (Kind.DATETIME, "2026-01-31", CellKind.DATE, POINT, dt.datetime(2026, 1, 31)),
        (Kind.TIME, "10:00:00", CellKind.TIME, POINT, dt.time(10)),
    ],
)
def test_a_typed_cell_is_what_the_spreadsheet_says(
    kind: Kind, text: str, cell: CellKind, formats: Formats, value: object
) -> None:
    assert read(kind, text, formats, cell) == value


@pytest.mark.parametrize(
    ("kind", "text", "cell", "formats", "code"),
    [
        (Kind.DATE, "46053", CellKind.NUMBER, POINT, "not_a_date"),
        (Kind.DATE, "2026-01-31T10:00:00", CellKind.DATETIME, POINT, "has_a_time"),
        (Kind.DATE, "true", CellKind.BOOL, POINT, "not_a_date"),
        (Kind.INTEGER, "2026-01-31", CellKind.DATE, POINT, "not_an_integer"),
        (Kind.INTEGER, "5.5", CellKind.NUMBER, POINT, "not_an_integer"),
        (Kind.INTEGER, "100000000000000000000", CellKind.NUMBER, POINT, "out_of_range"),
        (Kind.DECIMAL, "true", CellKind.BOOL, POINT, "not_a_number"),
        (Kind.BOOLEAN, "1", CellKind.NUMBER, POINT, "not_a_yes_no"),
        (Kind.TEXT, "#DIV/0!", CellKind.ERROR, POINT, "cell_error"),
        (Kind.TEXT, "=A1", CellKind.FORMULA, POINT, "no_value"),
        (Kind.TEXT, "", CellKind.FORMULA, POINT, "no_value"),
    ],
)
def test_a_typed_cell_of_another_kind_is_refused(
    kind: Kind, text: str, cell: CellKind, formats: Formats, code: str
) -> None:
    assert refused(kind, text, formats, cell).code == code


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [("12.5", 2, "12.50"), ("12.500", 2, "12.50"), ("12.50", None, "12.5"), ("1E+3", None, "1000"), ("-0", None, "0"),
     ("-0.00", 2, "0.00"), ("100", None, "100"), ("0.0", None, "0"), ("1E-7", None, "0.0000001"), ("5", 0, "5")],
)  # fmt: skip
def test_equal_decimals_are_stored_as_equal_texts(value: str, places: int | None, text: str) -> None:
    assert plain_decimal(Decimal(value), places) == text


def test_a_value_that_is_not_of_its_kind_is_not_stored() -> None:
    for kind, value in ((Kind.INTEGER, "5"), (Kind.INTEGER, 2**63), (Kind.DATE, 5), (Kind.DECIMAL, Decimal("NaN"))):
        with pytest.raises(TypeError):
            stored(kind, value)
    assert stored(Kind.JSON, {"b": 1, "a": [dt.date(2026, 1, 31)]}) == '{"a":["2026-01-31"],"b":1}'


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.FLOAT])
def test_a_long_number_that_a_spreadsheet_program_may_have_rounded_is_refused(kind: Kind) -> None:
    bad = refused(kind, "1.23456789012346e+16", cell=CellKind.NUMBER)
    assert (bad.code, "as text" in bad.reason) == ("rounded", True)
    assert read(Kind.FLOAT, "1.23456789012346e+16", cell=CellKind.NUMBER) == 1.23456789012346e16


def test_a_long_whole_number_of_a_sheet_is_taken_digit_by_digit() -> None:
    assert read(Kind.INTEGER, "1234567890123456789", cell=CellKind.NUMBER) == 1234567890123456789
    assert str(read(Kind.DECIMAL, "1234567890123456789012", cell=CellKind.NUMBER)) == "1234567890123456789012"
    assert read(Kind.TEXT, "1234567890123456789012", cell=CellKind.NUMBER) == "1234567890123456789012"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1,000", "write 1000 or 1"),
        ("1.000", "write 1000 or 1"),
        ("-1,234", "write -1234 if you mean that"),
        ("12,5", "it has a fraction"),
        ("0.125", "it has a fraction"),
        ("-0,125", "it has a fraction"),
        ("012.345", "it has a fraction"),
        ("0.000", "write 0"),
        ("1,234,567", "remove the thousands separators"),
    ],
)
def test_no_fraction_is_offered_for_a_whole_number(text: str, hint: str) -> None:
    with pytest.raises(BadCell) as refused:
        read_integer(text, Formats(), exponent=False)
    assert refused.value.code == "not_an_integer"
    assert refused.value.reason.endswith(f": {hint}")


@pytest.mark.parametrize("text", ["12.345", "0.125", "-1.234"])
def test_a_typed_number_has_no_sign_between_thousands(text: str) -> None:
    bad = refused(Kind.INTEGER, text, cell=CellKind.NUMBER)
    assert (bad.code, bad.reason) == ("not_an_integer", "not a whole number: it has a fraction")


def test_a_decimal_that_begins_with_zero_has_no_sign_between_thousands() -> None:
    assert refused(Kind.DECIMAL, "0,125").reason == "not a valid number: write 0.125"

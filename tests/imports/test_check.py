"""The check of rows: the good rows with their values, and the errors of the others."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from collections import Counter
from decimal import Decimal
from typing import Annotated, Any

import polars as pl
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rowlock.imports.check.check import Checked, Checker, hashable, key_hash
from rowlock.imports.check.reasons import CODES
from rowlock.imports.fields import fields_of
from rowlock.imports.formats import Formats
from rowlock.imports.read.source import CellKind
from rowlock.storage.imports import RowError


class Invoice(BaseModel):
    number: str = Field(max_length=6, pattern=r"^[A-Z]\d+$")
    amount: Decimal = Field(ge=0, max_digits=8, decimal_places=2)
    due: dt.date | None = None
    paid: bool = False
    note: str = ""


def check(
    model: type[BaseModel], data: dict[str, list[str]], formats: Formats | None = None, **options: Any
) -> Checked:
    rows = len(next(iter(data.values())))
    cells = {name: pl.Series(column, dtype=pl.String) for name, column in data.items()}
    frame = pl.DataFrame({"row": pl.Series(range(2, rows + 2), dtype=pl.UInt32)} | cells)
    errors_max = options.pop("errors_max", 100)
    header = options.pop("header", {})
    checker = Checker(model, fields_of(model, formats or Formats()), **options)
    return checker.check(frame, header, typed=False, errors_max=errors_max)


def told(checked: Checked) -> list[tuple[int, str | None, str]]:
    return [(one.row, one.column, one.code) for one in checked.errors]


def test_good_rows_have_the_types_of_the_model_in_its_order() -> None:
    checked = check(Invoice, {"due": ["2026-01-31", ""], "number": ["A1", " A2 "], "amount": ["5", "012.5"]})
    assert checked.good.rows() == [
        (2, "A1", "5.00", dt.date(2026, 1, 31), False, ""),
        (3, "A2", "12.50", None, False, ""),
    ]
    assert checked.good.schema == {
        "row": pl.UInt32, "number": pl.String, "amount": pl.String, "due": pl.Date, "paid": pl.Boolean,
        "note": pl.String,
    }  # fmt: skip
    assert (checked.invalid_rows, checked.errors, checked.groups, checked.invalid.len()) == (0, [], Counter(), 0)


def test_every_error_of_a_row_is_told_with_the_users_column_and_value() -> None:
    checked = check(
        Invoice,
        {
            "number": ["A1", "b", ""],
            "amount": ["1", "12,5", "-1"],
            "due": ["", "2026-02-30", ""],
            "paid": ["", "x", ""],
        },
        header={"number": "Invoice No.", "amount": "Amount"},
    )
    assert checked.good["row"].to_list() == [2]
    assert told(checked) == [
        (3, "Invoice No.", "bad_format"),
        (3, "Amount", "not_a_number"),
        (3, "due", "not_a_date"),
        (3, "paid", "not_a_yes_no"),
        (4, "Invoice No.", "required"),
        (4, "Amount", "out_of_range"),
    ]
    assert checked.errors[1] == RowError(
        3,
        "Amount",
        "not_a_number",
        "not a valid number: write 12.5",
        "12,5",
    )
    assert checked.errors[4].value == ""
    assert (checked.invalid_rows, checked.invalid.to_list()) == (2, [3, 4])


def test_all_errors_are_counted_and_the_first_kept() -> None:
    checked = check(Invoice, {"number": ["x"] * 50, "amount": ["y"] * 50}, errors_max=3)
    assert told(checked) == [(2, "number", "bad_format"), (2, "amount", "not_a_number"), (3, "number", "bad_format")]
    assert checked.groups == {("number", "bad_format"): 50, ("amount", "not_a_number"): 50}
    assert checked.invalid_rows == 50


def test_errors_come_in_the_order_of_row_numbers_whatever_the_order_of_the_frame() -> None:
    frame = pl.DataFrame({"row": [9, 3, 5], "number": ["x", "y", "A1"], "amount": ["1", "1", "1"]})
    checked = Checker(Invoice, fields_of(Invoice, Formats())).check(frame, {}, typed=False, errors_max=1)
    assert told(checked) == [(3, "number", "bad_format")]
    assert checked.invalid.to_list() == [3, 9]


def test_long_values_are_cut_and_nul_is_made_visible() -> None:
    checked = check(Invoice, {"number": ["A" * 500, "a\x00b"], "amount": ["1", "1"]}, values_max_chars=10)
    assert [one.value for one in checked.errors] == ["AAAAAAAAA…", "AAAAAAAAA…", "a\u2400b"][1:]
    assert checked.errors[-1].code == "bad_text"


@pytest.mark.parametrize(
    ("limit", "text", "good"),
    [({"max_length": 3}, "äöü", True), ({"max_length": 3}, "äöüx", False), ({"min_length": 2}, "😀", False),
     ({"min_length": 2}, "e\u0301", True), ({"pattern": "^a$"}, "a", True), ({"pattern": "^b$"}, "b\nb", False),
     ({"pattern": "^.$"}, "😀", True), ({"pattern": r"^\d$"}, "٣", True), ({"pattern": "b"}, "abc", True),
     ({"pattern": r"^\w+$"}, "größe", True)],
)  # fmt: skip
def test_lengths_count_characters_and_patterns_are_pydantics(limit: dict[str, Any], text: str, good: bool) -> None:
    class Row(BaseModel):
        x: str = Field(**limit)

    assert not fields_of(Row, Formats())[0].opaque
    assert check(Row, {"x": [text]}).good.height == good


def test_an_empty_cell_is_none_or_the_default_or_an_error() -> None:
    class Row(BaseModel):
        a: str
        b: int | None
        c: int = 7
        d: int | None = 8
        e: str = Field("dflt", min_length=10)
        f: str = Field(default_factory=lambda: "made")

    checked = check(Row, {name: ["", "1"] if name != "e" else ["", "1234567890"] for name in "abcdef"})
    assert told(checked) == [(2, "a", "required")]
    checked = check(Row, {name: ["x" if name == "a" else ""] for name in "abcdef"})
    assert checked.good.rows() == [(2, "x", None, 7, None, "dflt", "made")]


def test_a_missing_column_has_the_models_default_in_each_row() -> None:
    class Row(BaseModel):
        a: str
        b: int | None = 8
        c: str = Field(default_factory=lambda: uuid.uuid4().hex)

    good = check(Row, {"a": ["x", "y"]}).good
    assert good["b"].to_list() == [8, 8]
    assert good["c"].n_unique() == 2


def test_secret_values_are_not_shown_and_no_reason_quotes_them() -> None:
    def refuse(value: str) -> str:
        raise ValueError(f"{value} is too weak")

    class Row(BaseModel):
        a: SecretStr = Field(max_length=3)
        b: Annotated[str, AfterValidator(refuse)] = Field(json_schema_extra={"secret": True})
        c: int = Field(json_schema_extra={"secret": True})

    checked = check(Row, {"a": ["hush1"], "b": ["hush2"], "c": ["hush3"]})
    assert [one.value for one in checked.errors] == ["[redacted]"] * 3
    assert "hush" not in repr(checked.errors)


def test_a_secret_text_is_stored_as_it_is() -> None:
    class Row(BaseModel):
        a: SecretStr

    assert check(Row, {"a": ["hush"]}).good.rows() == [(2, "hush")]


def test_validators_of_fields_see_values_and_those_before_pydantic_see_text() -> None:
    seen: list[object] = []

    def twice(value: int) -> int:
        seen.append(value)
        return value * 2

    def bare(text: str) -> str:
        seen.append(text)
        return text.removesuffix(" pcs")

    class Row(BaseModel):
        a: Annotated[int, AfterValidator(twice)]
        b: Annotated[Decimal, BeforeValidator(bare)]
        c: int = 0

    checked = check(
        Row, {"a": ["1.000", "x"], "b": ["5 pcs", "5"], "c": ["1", "2"]}, Formats(decimal=",", thousands=".")
    )
    assert checked.good.rows() == [(2, 2000, "5", 1)]
    assert told(checked) == [(3, "a", "not_an_integer")]
    assert seen == [1000, "5 pcs", "5"]


def test_validators_of_rows_see_each_row_and_their_errors_are_of_the_row() -> None:
    class Row(BaseModel):
        a: int
        b: int

        @model_validator(mode="after")
        def ordered(self) -> Row:
            if self.a > self.b:
                raise ValueError("a is more than b")
            return self

    checked = check(Row, {"a": ["1", "3", "x"], "b": ["2", "2", "y"]})
    assert checked.good.rows() == [(2, 1, 2)]
    assert told(checked) == [(3, None, "invalid"), (4, "a", "not_an_integer"), (4, "b", "not_an_integer")]
    assert checked.errors[0] == RowError(3, None, "invalid", "a is more than b", None)


def test_a_validator_that_breaks_costs_its_row() -> None:
    class Row(BaseModel):
        a: int
        b: int

        @field_validator("b")
        @classmethod
        def broken(cls, value: int, info: ValidationInfo) -> int:
            return value // info.data["a"]

    checked = check(Row, {"a": ["1", "0", "x"], "b": ["2", "2", "2"]})
    assert checked.good.rows() == [(2, 1, 2)]
    assert told(checked) == [(3, None, "check_failed"), (4, "a", "not_an_integer")]


def test_a_validator_that_returns_another_type_costs_its_row() -> None:
    class Row(BaseModel):
        a: Annotated[int, AfterValidator(str)]

    assert told(check(Row, {"a": ["1"]})) == [(2, "a", "check_failed")]


def test_a_custom_error_brings_its_own_code() -> None:
    def refuse(value: int) -> int:
        raise PydanticCustomError("sold_out", "item {item} is sold out", {"item": value})

    class Row(BaseModel):
        a: Annotated[int, AfterValidator(refuse)]

    assert check(Row, {"a": ["7"]}).errors == [RowError(2, "a", "sold_out", "item 7 is sold out", "7")]


def test_a_list_is_read_from_json_and_stored_as_json() -> None:
    class Row(BaseModel):
        a: list[int]

    checked = check(Row, {"a": ["[1, 2]", '[1, "x"]', "1;2", "[NaN]"]})
    assert checked.good.rows() == [(2, "[1,2]")]
    assert told(checked) == [(3, "a", "not_an_integer"), (4, "a", "not_json"), (5, "a", "not_json")]
    assert "(at 1)" in checked.errors[0].reason


def test_aliases_do_not_matter_to_the_check() -> None:
    class Row(BaseModel):
        a: int = Field(alias="Zahl", ge=5)

    checked = check(Row, {"a": ["7", "3"]}, header={"a": "Die Zahl"})
    assert checked.good.rows() == [(2, 7)]
    assert told(checked) == [(3, "Die Zahl", "out_of_range")]


def test_typed_cells_are_checked_by_their_kinds() -> None:
    class Row(BaseModel):
        a: str
        b: Decimal
        c: dt.date | None = None

    cells = {
        "a": [("5", CellKind.NUMBER), ("x", CellKind.TEXT), ("#N/A", CellKind.ERROR), ("y", CellKind.TEXT)],
        "b": [("12.5", CellKind.NUMBER), ("12,5", CellKind.TEXT), ("1", CellKind.NUMBER), ("=A1", CellKind.FORMULA)],
        "c": [
            ("2026-01-31", CellKind.DATE),
            ("", CellKind.TEXT),
            ("46053", CellKind.NUMBER),
            ("31.01.2026", CellKind.TEXT),
        ],
    }
    frame = pl.DataFrame({"row": pl.Series([4, 5, 6, 9], dtype=pl.UInt32)}).with_columns(
        *(pl.Series(name, [text for text, _ in column]) for name, column in cells.items()),
        *(
            pl.Series(name + "#kind", [int(kind) for _, kind in column], dtype=pl.UInt8)
            for name, column in cells.items()
        ),
    )
    fields = fields_of(Row, Formats(decimal=",", dates=("day_first",)))
    checked = Checker(Row, fields).check(frame, {}, typed=True, errors_max=10)
    assert checked.good.rows() == [(4, "5", "12.5", dt.date(2026, 1, 31)), (5, "x", "12.5", None)]
    assert told(checked) == [(6, "a", "cell_error"), (6, "c", "not_a_date"), (9, "b", "no_value")]


def test_a_frame_without_rows_is_checked_too() -> None:
    checked = check(Invoice, {"number": [], "amount": []})
    assert (checked.good.height, checked.invalid_rows) == (0, 0)


def test_a_check_leaves_its_frame_as_it_was() -> None:
    frame = pl.DataFrame({"row": [2, 3], "number": ["A1", ""], "amount": ["1.00", " 5 "], "note": ["", "N/A"]})
    before = frame.clone().to_dict(as_series=False)
    formats = Formats(strip=False, blank_words=("N/A",))
    fields = fields_of(Invoice, formats)
    Checker(Invoice, fields).check(frame, {}, typed=False, errors_max=10)
    key_hash(frame, fields[:2], False)
    assert frame.to_dict(as_series=False) == before


def test_equal_keys_in_other_spellings_have_equal_hashes_and_bad_ones_that_of_their_text() -> None:
    class Row(BaseModel):
        a: Decimal = Field(decimal_places=2)
        b: dt.date

    fields = fields_of(Row, Formats(dates=("day_first",)))
    frame = pl.DataFrame(
        {
            "a": ["5", "5.00", " 05.0", "x", "x ", "6"],
            "b": ["2026-01-31", "31.1.2026", "31/01/2026", "2026-01-31", "31.1.2026", ""],
        }
    )
    found = key_hash(frame, fields, False).to_list()
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4]
    assert len({*found}) == 3


def test_hashes_are_the_same_in_another_process() -> None:
    script = """if True:
        import polars as pl
        from pydantic import BaseModel
        from rowlock.imports.check.check import key_hash
        from rowlock.imports.fields import fields_of
        from rowlock.imports.formats import Formats

        class Row(BaseModel):
            a: str
            b: int

        print(key_hash(pl.DataFrame({"a": ["x", "y"], "b": ["1", "z"]}), fields_of(Row, Formats()), False).to_list())
    """
    made = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert len(made) == 1


def test_a_key_that_only_pydantic_can_read_has_no_hash() -> None:
    class Row(BaseModel):
        a: Annotated[str, AfterValidator(str.upper)]
        b: str
        c: str = Field(default_factory=str)

    a, b, c = fields_of(Row, Formats())
    assert [hashable([one]) for one in (a, b, c)] == [False, True, False]
    with pytest.raises(ValueError, match="no hash"):
        key_hash(pl.DataFrame({"a": ["x"]}), [a], False)


def test_the_order_of_key_fields_and_nulls_matter_to_the_hash() -> None:
    class Row(BaseModel):
        a: str | None
        b: str | None

    fields = fields_of(Row, Formats())
    found = key_hash(pl.DataFrame({"a": ["x", "y", "", "x"], "b": ["y", "x", "x", ""]}), fields, False)
    assert found.n_unique() == 4


def test_every_code_that_is_told_is_documented() -> None:
    checked = check(
        Invoice,
        {
            "number": ["", "A1234567", "a", "\ufffd"],
            "amount": ["nan", "1.234", "9999999", "-1"],
            "due": ["x", "1", "", ""],
        },
    )
    assert {code for _, code in checked.groups} <= set(CODES)
    assert {code for _, code in checked.groups} >= {
        "required",
        "too_long",
        "bad_format",
        "bad_text",
        "nan",
        "too_many_places",
    }

"""The output of hooks is checked like cells, on every store, and each row keeps its number."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import polars as pl
import pytest
from pydantic import BaseModel, Field

from imports.conftest import MakeOffice, error_of, told
from rowlock import Importer, Loaded, Run
from rowlock.imports.check.hook_output import checked_output
from rowlock.storage.imports import ImportStatus
from rowlock.storage.tables import Column, Kind

UTC = dt.UTC
NUMBER = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")


class Item(BaseModel):
    code: str
    count: int = 0
    price: Decimal = Field(Decimal(0), max_digits=8, decimal_places=2)
    day: dt.date | None = None


FILE = "code,count\na,1\nb,2\nc,3\n"


def declare(importer: type[Importer]) -> Callable[[Any], object]:
    return lambda app: app.importer("odd", row=Item, key=["code"], into="odd")(importer)


class Transforming(Importer):
    """Values of the wrong kinds in the second row, those of the others written otherwise."""

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(
            pl.when(pl.col("count") == 2).then(1.5).otherwise(pl.col("count") * 10.0).alias("count"),
            pl.when(pl.col("count") == 2).then(0.125).otherwise(0.5).alias("price"),
            pl.when(pl.col("count") == 2).then(pl.lit("tomorrow")).otherwise(pl.lit("2026-01-31")).alias("day"),
        )


class Loading(Importer):
    """The same in the last hook."""

    async def load(self, frame: pl.DataFrame, run: Run) -> Loaded:
        return await run.load(Transforming().transform(frame, run))


@pytest.mark.every_store
async def test_values_that_transform_makes_are_checked_like_cells(make_office: MakeOffice) -> None:
    office = await make_office(declare(Transforming))
    record = await office.run(FILE, type="odd")

    assert told(record) == (3, 2, 0, 0, 0, 1), record.error
    found = await office.table("code", "count", "price", of="odd")
    assert found == [("a", 10, "0.50"), ("c", 30, "0.50")]
    (bad,) = await office.errors(record.id)
    assert (bad.row, list(bad.cells)) == (3, ["b", "2"])
    assert [(error.column, error.code, error.value) for error in bad.errors] == [
        ("count", "not_an_integer", "1.5"),
        ("price", "too_many_places", "0.125"),
        ("day", "not_a_date", "tomorrow"),
    ]


@pytest.mark.every_store
async def test_values_that_load_makes_are_checked_like_cells(make_office: MakeOffice) -> None:
    office = await make_office(declare(Loading))
    record = await office.run(FILE, type="odd")

    assert told(record) == (3, 2, 0, 0, 0, 1), record.error
    assert await office.table("code", "count", of="odd") == [("a", 10), ("c", 30)]
    (bad,) = await office.errors(record.id)
    assert (bad.row, [(error.column, error.code) for error in bad.errors]) == (3, [("count", "not_an_integer")])


class Moving(Importer):
    hook = "transform"

    def _moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("row").reverse())

    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        run.reject([2], "is the first")
        return self._moved(frame) if self.hook == "transform" else frame

    def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return self._moved(frame) if self.hook == "parse" else frame


class Counting(Moving):
    def _moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("row") + 1)


class Rejecting(Importer):
    def enrich(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        run.reject([40], "is another's")
        return frame


@pytest.mark.parametrize("hook", ["parse", "transform"])
@pytest.mark.parametrize("importer", [Moving, Counting, Rejecting])
async def test_a_hook_cannot_move_the_numbers_of_rows(
    make_office: MakeOffice, importer: type[Importer], hook: str
) -> None:
    office = await make_office(declare(type("Named", (importer,), {"hook": hook})))
    record = await office.run(FILE, type="odd")

    assert record.status is ImportStatus.FAILED
    assert "'row'" in error_of(record)["message"]


class Untimely(Importer):
    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(day=pl.lit(dt.timedelta(hours=1)))


class Renumbering(Importer):
    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return frame.with_columns(row=pl.lit("x"))


class Forgetting(Importer):
    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        return None  # type: ignore[return-value]


class RejectingTexts(Importer):
    def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
        run.reject([[2]], "is a list")  # type: ignore[list-item]
        return frame


class Exact(Importer):
    async def prepare(self, run: Run) -> None:
        run.values["rate"] = Decimal("1.5")


@pytest.mark.parametrize(
    ("importer", "message"),
    [
        (
            Untimely,
            "values of the type Duration(time_unit='us') for the column 'day', which cannot be converted to date",
        ),
        (Renumbering, "transform() changes the column 'row'"),
        (Forgetting, "transform() must return a frame, not NoneType"),
        (RejectingTexts, "transform() failed: TypeError: unhashable type: 'list'"),
        (Exact, "run.values must be JSON (Type is not JSON serializable: decimal.Decimal)"),
    ],
)
async def test_what_no_hook_may_return_fails_the_import_at_once(
    make_office: MakeOffice, importer: type[Importer], message: str
) -> None:
    office = await make_office(declare(importer))
    record = await office.run(FILE, type="odd")

    assert record.status is ImportStatus.FAILED
    assert message in error_of(record)["message"]


class Tagged(Item):
    tags: list[Any] = []


@pytest.mark.parametrize("tags", [[{"a": 1}, {"b": 2}], [1, "a"], [], [[]], {"a": [1, None, "x"]}])
async def test_json_constants_are_stored_as_they_are(make_office: MakeOffice, tags: Any) -> None:
    class Tagging(Importer):
        async def prepare(self, run: Run) -> None:
            run.values["tags"] = tags

    def tagged(app: Any) -> None:
        app.importer("odd", row=Item, stored=Tagged, key=["code"], into="odd", create=True, constants=["tags"])(Tagging)

    office = await make_office(tagged)
    record = await office.run(FILE, type="odd")
    assert told(record) == (3, 3, 0, 0, 0, 0), record.error
    found = await office.column("tags", of="odd")
    assert [orjson.loads(one) if isinstance(one, str) else one for one in found] == [tags] * 3


async def test_a_hook_may_put_rows_in_another_order(make_office: MakeOffice) -> None:
    class Sorting(Importer):
        def parse(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.sort("code", descending=True)

        def transform(self, frame: pl.DataFrame, run: Run) -> pl.DataFrame:
            return frame.sort("count", descending=True).with_columns(pl.col("row").cast(pl.Int64))

    office = await make_office(declare(Sorting))
    assert told(await office.run(FILE, type="odd")) == (3, 3, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        (Kind.TEXT, [1, None], ["1", None]),
        (Kind.TEXT, ["", " a "], ["", " a "]),
        (Kind.INTEGER, [1.0, -2.0], [1, -2]),
        (Kind.INTEGER, ["5", None], [5, None]),
        (Kind.INTEGER, [Decimal("5.000"), None], [5, None]),
        (Kind.DECIMAL, [1.5, 2.0], ["1.5", "2"]),
        (Kind.DECIMAL, ["1.50", "007"], ["1.5", "7"]),
        (Kind.DECIMAL, [Decimal("1.50"), None], ["1.5", None]),
        (Kind.FLOAT, [1, 2], [1.0, 2.0]),
        (Kind.FLOAT, ["1e5", "0.1"], [1e5, 0.1]),
        (Kind.BOOLEAN, ["true", None], [True, None]),
        (Kind.DATE, ["2026-01-31", None], [dt.date(2026, 1, 31), None]),
        (Kind.DATE, [dt.datetime(2026, 1, 31)], [dt.date(2026, 1, 31)]),
        (Kind.DATETIME, [dt.date(2026, 1, 31)], [dt.datetime(2026, 1, 31, tzinfo=UTC)]),
        (Kind.DATETIME, ["2026-01-31T10:00:00+01:00"], [dt.datetime(2026, 1, 31, 9, tzinfo=UTC)]),
        (Kind.DATETIME, [dt.datetime(2026, 1, 31, 9)], [dt.datetime(2026, 1, 31, 9)]),
        (Kind.TIME, ["10:30", None], [dt.time(10, 30), None]),
        (Kind.UUID, [str(NUMBER).upper()], [str(NUMBER)]),
        (Kind.JSON, [[1, 2], None], ["[1,2]", None]),
        (Kind.JSON, ['{"a": 1}'], ['{"a": 1}']),
        (Kind.JSON, [{"a": 1}], ['{"a":1}']),
        (Kind.INTEGER, [None, None], [None, None]),
    ],
)
def test_values_of_another_dtype_are_converted_where_nothing_changes(
    kind: Kind, given: list[Any], made: list[Any]
) -> None:
    frame = pl.DataFrame({"row": range(len(given)), "x": given})
    found, errors = checked_output(frame, [Column("x", kind, True)])
    assert errors == []
    assert found["x"].to_list() == made


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Object])
@pytest.mark.parametrize(
    ("column", "given", "made"),
    [
        (
            Column("x", Kind.DECIMAL, places=2),
            [3 * 1.15, 19.99 * 3, 0.1 + 0.2, 1e16],
            ["3.45", "59.97", "0.30", "1" + "0" * 16 + ".00"],
        ),
        (
            Column("x", Kind.DECIMAL),
            [3 * 1.15, 1e-5, 1e16, 1 / 3],
            ["3.45", "0.00001", "1" + "0" * 16, "0." + "3" * 15],
        ),
        (Column("x", Kind.DECIMAL), [-1.5e-7, 0.0, -1e22, 2.0**60], ["-0.00000015", "0", "-1" + "0" * 22, None]),
        (Column("x", Kind.INTEGER), [1e16, 3 * (1.1 + 2.2 - 3.3 + 1), 115 * 1.1 / 1.1, 5.0], [10**16, 3, 115, 5]),
    ],
)
def test_noise_of_floating_numbers_is_no_reason_to_refuse_them(
    column: Column, given: list[float], made: list[Any], dtype: Any
) -> None:
    made = [format(Decimal(repr(x)), "f") if y is None else y for x, y in zip(given, made, strict=True)]
    values = pl.Series("x", given, dtype=dtype)
    found, errors = checked_output(pl.DataFrame([pl.Series("row", range(len(given))), values]), [column])
    assert errors == []
    assert found["x"].to_list() == made


def test_floating_numbers_have_no_sign_between_thousands() -> None:
    frame = pl.DataFrame({"row": [1], "x": [12.345]})
    (error,) = checked_output(frame, [Column("x", Kind.INTEGER)])[1]
    assert error.reason == "not a whole number: it has a fraction"


def test_floating_numbers_of_four_bytes_have_their_own_digits() -> None:
    frame = pl.DataFrame([pl.Series("row", [1, 2]), pl.Series("x", [0.1, 19.99], dtype=pl.Float32)])
    found, errors = checked_output(frame, [Column("x", Kind.DECIMAL, places=2)])
    assert (found["x"].to_list(), errors) == (["0.10", "19.99"], [])


def test_objects_are_read_as_what_they_are() -> None:
    given = pl.Series("x", [Decimal("1.50"), None], dtype=pl.Object)
    frame = pl.DataFrame([pl.Series("row", [1, 2]), given])
    assert checked_output(frame, [Column("x", Kind.DECIMAL, True)])[0]["x"].to_list() == ["1.5", None]
    frame = pl.DataFrame([pl.Series("row", [1]), pl.Series("x", [NUMBER], dtype=pl.Object)])
    assert checked_output(frame, [Column("x", Kind.UUID)])[0]["x"].to_list() == [str(NUMBER)]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (Column("x", Kind.TEXT, length_max=3), "abcd", "too_long"),
        (Column("x", Kind.TEXT), "a\0", "bad_text"),
        (Column("x", Kind.INTEGER), 1.5, "not_an_integer"),
        (Column("x", Kind.INTEGER), "x", "not_an_integer"),
        (Column("x", Kind.INTEGER), True, "not_an_integer"),
        (Column("x", Kind.INTEGER), 2**63, "out_of_range"),
        (Column("x", Kind.FLOAT), float("nan"), "nan"),
        (Column("x", Kind.DECIMAL), float("inf"), "nan"),
        (Column("x", Kind.INTEGER), 1e300, "out_of_range"),
        (Column("x", Kind.DECIMAL, digits=4, places=2), 3.4567, "too_many_places"),
        (Column("x", Kind.DECIMAL, digits=4, places=2), 1e16, "too_many_digits"),
        (Column("x", Kind.DECIMAL), "1,5", "not_a_number"),
        (Column("x", Kind.DECIMAL, digits=4, places=2), "123.4", "too_many_digits"),
        (Column("x", Kind.DECIMAL, digits=4, places=2), "1.234", "too_many_places"),
        (Column("x", Kind.BOOLEAN), 1, "not_a_yes_no"),
        (Column("x", Kind.DATE), dt.datetime(2026, 1, 31, 10), "has_a_time"),
        (Column("x", Kind.DATETIME), "soon", "not_a_datetime"),
        (Column("x", Kind.TIME), "25:00", "not_a_time"),
        (Column("x", Kind.UUID), "x", "not_a_uuid"),
        (Column("x", Kind.JSON), "{", "not_json"),
    ],
)
def test_a_value_that_is_none_of_its_column_is_an_error_of_its_row(column: Column, value: object, code: str) -> None:
    dtype = pl.UInt64 if value == 2**63 else None
    frame = pl.DataFrame([pl.Series("row", [7, 8]), pl.Series("x", [value, None], dtype=dtype)])
    found, errors = checked_output(frame, [column])
    assert [(error.row, error.column, error.code) for error in errors] == [(7, "x", code)]
    assert found.rows() == [(8, None)]

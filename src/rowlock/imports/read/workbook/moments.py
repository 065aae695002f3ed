"""Converts serial numbers to dates and times, in both of Excel's calendars.

A serial counts days, and its fraction is the time of the day. In the 1900 calendar day 1 is 1900-01-01 and day 60 is
1900-02-29, which did not exist; in the 1904 calendar day 0 is 1904-01-01. Times are rounded to the millisecond, the
finest that Excel shows: present-day serials are not precise to the microsecond.
"""

from __future__ import annotations

from datetime import date

import polars as pl

from rowlock.imports.read.source import CellKind
from rowlock.imports.read.workbook.styles import Show

DAY = 86_400_000
_UNIX = date(1970, 1, 1)
_EARLY_1900 = (date(1899, 12, 31) - _UNIX).days * DAY
_LATE_1900 = (date(1899, 12, 30) - _UNIX).days * DAY
_ALL_1904 = (date(1904, 1, 1) - _UNIX).days * DAY
_END = ((date(9999, 12, 31) - _UNIX).days + 1) * DAY


def moments(written: pl.Series, show: Show, since_1904: bool) -> tuple[pl.Series, pl.Series, list[int]]:
    """Return texts and kinds, and the places of values that are not in this calendar, which stay numbers."""
    serial = written.str.strip_chars().cast(pl.Float64, strict=False)
    frame = pl.DataFrame({"serial": serial}).select(
        "serial",
        ms=pl.when(pl.col("serial").is_between(0, 3_000_000)).then((pl.col("serial") * DAY).round()).cast(pl.Int64),
    )
    ms = pl.col("ms")
    moment: pl.Expr
    if since_1904:
        moment = ms + _ALL_1904
    else:
        moment = (
            pl.when(ms < DAY)
            .then(None)
            .when(ms < 60 * DAY)
            .then(ms + _EARLY_1900)
            .when(ms < 61 * DAY)
            .then(None)
            .otherwise(ms + _LATE_1900)
        )
    moment = pl.when(moment < _END).then(moment)
    clock = pl.col("serial").is_between(0, 1, closed="left")
    if show is Show.DATE or (show is Show.BOTH and since_1904):
        clock = pl.lit(False)
    frame = frame.with_columns(clock=clock, moment=moment, time=pl.min_horizontal(ms, pl.lit(DAY - 1)))
    kind: pl.Expr = (
        pl.when("clock").then(int(CellKind.TIME)).when(pl.col("moment").is_not_null()).then(int(CellKind.DATETIME))
    )
    if show is Show.DATE:
        kind = pl.when(pl.col("moment") % DAY == 0).then(int(CellKind.DATE)).otherwise(kind)
    frame = frame.with_columns(kind=kind.cast(pl.UInt8))
    kinds = frame["kind"]
    others = kinds.is_null().arg_true().to_list()
    texts = _texts(frame)
    return texts.fill_null(""), kinds.fill_null(int(CellKind.NUMBER)), others


def _texts(frame: pl.DataFrame) -> pl.Series:
    """Format the values; only kinds that occur, because formatting is the slow part."""
    forms = {
        int(CellKind.DATE): pl.col("moment").cast(pl.Datetime("ms")).cast(pl.Date).cast(pl.String),
        int(CellKind.DATETIME): pl.col("moment").cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%dT%H:%M:%S%.f"),
        int(CellKind.TIME): pl.col("time").cast(pl.Datetime("ms")).dt.strftime("%H:%M:%S%.f"),
    }
    text: pl.Expr | None = None
    for kind in frame["kind"].drop_nulls().unique():
        text = pl.when(pl.col("kind") == kind).then(forms[kind]).otherwise(text)
    if text is None:
        return pl.repeat("", frame.height, dtype=pl.String, eager=True)
    return frame.select(text).to_series()

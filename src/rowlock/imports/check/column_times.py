"""Whole columns of dates and times: the rules of `times.py`, compiled."""

from __future__ import annotations

import datetime as dt
import re

import polars as pl

from rowlock.imports.check.times import SERIAL_EPOCH, SERIAL_MAX, written_dates
from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats

_ISO_DATE = "^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_HOURS = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_CLOCKS = ((f"{_HOURS}:[0-5][0-9](?:\\.[0-9]{{1,6}}0{{0,3}})?", "%H:%M:%S%.f"), (_HOURS, "%H:%M"))
_ZONES = (("", ""), ("[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]", "%z"))
_FIRST, _LAST = dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, tzinfo=dt.UTC)

Column = tuple[pl.Series, pl.Series]


def dates(field: Field, text: pl.Series, formats: Formats, *, first: bool, limits: bool = True) -> Column:
    """Read dates: only ISO if `first`, otherwise also in the declared orders and as spreadsheet day numbers."""
    values = text.str.to_date("%Y-%m-%d", strict=False, cache=False)
    ok = text.str.contains(_ISO_DATE) & values.is_not_null()
    if not first:
        for way in written_dates(formats)[1:]:
            if ok.all():
                break
            fits = ~ok & text.str.contains(f"^{_bare(way.pattern)}$")
            if fits.any():
                where = fits.arg_true()
                found = text.gather(where).str.to_date(way.strptime, strict=False, cache=False)
                values, ok = values.scatter(where, found), ok.scatter(where, found.is_not_null() & _modern(found))
        if formats.excel_serials:
            where = (~ok & text.str.contains("^[1-9][0-9]{1,6}$")).arg_true()
            if len(where):
                days = text.gather(where).cast(pl.Int32, strict=False)
                found = (days + (SERIAL_EPOCH - dt.date(1970, 1, 1)).days).cast(pl.Date)
                values, ok = values.scatter(where, found), ok.scatter(where, (days > 60) & (days <= SERIAL_MAX))
    for fits in _bounds(field, values) if limits else ():
        ok = ok & fits
    return values, ok.fill_null(False)


def datetimes(field: Field, text: pl.Series, formats: Formats, *, first: bool) -> Column:
    """Read dates with a time, in UTC; naive for a field that forbids a zone."""
    naive = field.zone == "naive"
    values = pl.Series([None], dtype=pl.Datetime("us") if naive else pl.Datetime("us", "UTC")).new_from_index(
        0, len(text)
    )
    ok = pl.repeat(False, len(text), dtype=pl.Boolean, eager=True)
    ways = written_dates(formats)
    for way in ways[:1] if first else ways:
        for separator in ("T", " "):
            for clock, code in _CLOCKS:
                for zone, zone_code in _ZONES:
                    if ok.all() or (field.zone == "aware" and not zone) or (naive and zone):
                        continue
                    read = text.str.replace("[Zz]$", "+00:00") if zone else text
                    fits = ~ok & read.str.contains(f"^{_bare(way.pattern)}{separator}{clock}{zone}$")
                    if not fits.any():
                        continue
                    where = fits.arg_true()
                    made = read.gather(where).str.to_datetime(
                        f"{way.strptime}{separator}{code}{zone_code}",
                        strict=False,
                        cache=False,
                        time_unit="us",
                        time_zone="UTC" if zone else None,
                    )
                    if not zone and not naive:
                        made = made.dt.replace_time_zone("UTC")
                    values, ok = values.scatter(where, made), ok.scatter(where, _inside(made, naive))
    if not first and field.zone != "aware" and not ok.all():
        where = (~ok).arg_true()
        days, found = dates(field, text.gather(where), formats, first=False, limits=False)
        made = days.cast(pl.Datetime("us"))
        made = made if naive else made.dt.replace_time_zone("UTC")
        values, ok = values.scatter(where, made), ok.scatter(where, found)
    return values, ok


def times(text: pl.Series) -> Column:
    """Read times of day, which have at least hours and minutes."""
    values = text.str.to_time("%H:%M:%S%.f", strict=False, cache=False)
    ok = text.str.contains(f"^{_HOURS}:[0-5][0-9](?:\\.[0-9]{{1,6}})?$") & values.is_not_null()
    if not ok.all():
        where = (~ok & text.str.contains(f"^{_HOURS}$")).arg_true()
        if len(where):
            values = values.scatter(where, text.gather(where).str.to_time("%H:%M", strict=False, cache=False))
            ok = ok.scatter(where, True)
    return values, ok.fill_null(False)


def _bare(pattern: str) -> str:
    """Return the pattern without group names and for years from 1000 on; the rules for single cells read the others."""
    return re.sub(r"\(\?P<\w>", "(?:", pattern).replace("[0-9]{4}", "[1-9][0-9]{3}")


def _modern(days: pl.Series) -> pl.Series:
    return (days.dt.year() >= 1000).fill_null(False)


def _inside(made: pl.Series, naive: bool) -> pl.Series:
    first, last = (_FIRST.replace(tzinfo=None), _LAST.replace(tzinfo=None)) if naive else (_FIRST, _LAST)
    return made.is_between(first, last).fill_null(False)


def _bounds(field: Field, values: pl.Series) -> list[pl.Series]:
    found = []
    if field.ge is not None:
        found.append(values >= dt.date.fromisoformat(field.ge))
    if field.gt is not None:
        found.append(values > dt.date.fromisoformat(field.gt))
    if field.le is not None:
        found.append(values <= dt.date.fromisoformat(field.le))
    if field.lt is not None:
        found.append(values < dt.date.fromisoformat(field.lt))
    return found

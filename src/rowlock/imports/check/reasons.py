"""Why a cell or row was rejected: stable codes, and reasons for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

CODES: dict[str, str] = {
    "required": "the cell is empty, and the field has no default",
    "bad_text": "the text has a NUL or U+FFFD in it: its encoding was damaged before it came here",
    "cell_error": "the cell is an error of the spreadsheet, such as #DIV/0!",
    "no_value": "the cell is a formula that was never computed",
    "not_a_number": "the text is no number as this import writes them",
    "not_an_integer": "the number has a fraction, or the text is no whole number",
    "rounded": "the number has more digits than a spreadsheet program or the column keeps: it was or would be rounded",
    "nan": "NaN and infinity are no values",
    "out_of_range": "the value is too small or too large",
    "too_many_digits": "the number has more digits than the field",
    "too_many_places": "the number has more digits behind the point than the field",
    "not_a_multiple": "the number is no multiple of the field's step",
    "too_long": "the text is longer than the field",
    "too_short": "the text is shorter than the field asks for",
    "bad_format": "the text does not have the form that the field asks for",
    "not_a_date": "the text is no date as this import writes them",
    "not_a_datetime": "the text is no date with a time as this import writes them",
    "not_a_time": "the text is no time of day",
    "has_a_time": "a date is asked for, and the cell has a time too",
    "time_zone": "the time zone is missing, or there is one where none may be",
    "not_a_yes_no": "the text is none of the words for yes and no",
    "not_one_of": "the value is none of those that the field may have",
    "not_a_uuid": "the text is no UUID",
    "not_json": "the text is no JSON",
    "not_text": "the value is no text",
    "invalid": "the importer's own check, or one of pydantic's without a code here, refused the value",
    "check_failed": "the importer's own check did not end in a verdict",
}
"""Every error code that the check of a row can give, with its meaning. Custom pydantic errors bring their own codes."""


class BadCell(ValueError):
    """A cell does not fit its field."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


_Reason = Callable[[Mapping[str, Any]], str]


def _least(sign: str) -> _Reason:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}[sign]
    return lambda ctx: f"must be {words} {ctx.get(sign)}"


_PYDANTIC: dict[str, tuple[str, _Reason]] = {
    "missing": ("required", lambda _: "must not be empty"),
    "string_too_long": ("too_long", lambda c: f"must have at most {c['max_length']} characters"),
    "string_too_short": ("too_short", lambda c: f"must have at least {c['min_length']} characters"),
    "string_pattern_mismatch": (
        "bad_format",
        lambda c: f"is not written as it must be: it has to fit the pattern {c['pattern']}",
    ),
    "greater_than_equal": ("out_of_range", _least("ge")),
    "greater_than": ("out_of_range", _least("gt")),
    "less_than_equal": ("out_of_range", _least("le")),
    "less_than": ("out_of_range", _least("lt")),
    "multiple_of": ("not_a_multiple", lambda c: f"must be a multiple of {c['multiple_of']}"),
    "decimal_max_digits": ("too_many_digits", lambda c: f"must have at most {c['max_digits']} digits"),
    "decimal_max_places": (
        "too_many_places",
        lambda c: f"must have at most {c['decimal_places']} digits behind the decimal sign",
    ),
    "decimal_whole_digits": (
        "too_many_digits",
        lambda c: f"must have at most {c['whole_digits']} digits before the decimal sign",
    ),
    "finite_number": ("nan", lambda _: "must be a finite number"),
    "enum": ("not_one_of", lambda c: f"must be {c['expected']}"),
    "literal_error": ("not_one_of", lambda c: f"must be {c['expected']}"),
    "timezone_aware": ("time_zone", lambda _: "must name its time zone, as in 2026-01-31T10:00:00+01:00"),
    "timezone_naive": ("time_zone", lambda _: "must not name a time zone"),
    "date_past": ("out_of_range", lambda _: "must be in the past"),
    "date_future": ("out_of_range", lambda _: "must be in the future"),
    "datetime_past": ("out_of_range", lambda _: "must be in the past"),
    "datetime_future": ("out_of_range", lambda _: "must be in the future"),
    "date_from_datetime_inexact": ("has_a_time", lambda _: "must be a date without a time"),
    "json_invalid": ("not_json", lambda _: "must be JSON"),
    "uuid_version": ("not_a_uuid", lambda c: f"must be a UUID of version {c['expected_version']}"),
    "too_long": ("too_long", lambda c: f"must have at most {c['max_length']} characters"),
    "too_short": ("too_short", lambda c: f"must have at least {c['min_length']} characters"),
}
_FAMILIES = {
    "int": ("not_an_integer", "must be a whole number"),
    "decimal": ("not_a_number", "must be a number"),
    "float": ("not_a_number", "must be a number"),
    "bool": ("not_a_yes_no", "must be yes or no"),
    "date": ("not_a_date", "must be a date"),
    "datetime": ("not_a_datetime", "must be a date with a time"),
    "time": ("not_a_time", "must be a time"),
    "uuid": ("not_a_uuid", "must be a UUID"),
    "string": ("not_text", "must be text"),
    "url": ("bad_format", "must be a URL"),
    "json": ("not_json", "must be JSON"),
}


def of_pydantic(error: Mapping[str, Any], *, secret: bool) -> tuple[str, str]:
    """Return the code and reason of a pydantic error; for a secret field, the reason cannot quote its value."""
    kind = error["type"]
    context = error.get("ctx") or {}
    if kind in _PYDANTIC:
        code, told = _PYDANTIC[kind]
        return code, told(context)
    family, _, rest = kind.partition("_")
    if family in _FAMILIES and rest in (
        "type",
        "parsing",
        "parsing_size",
        "from_float",
        "scheme",
        "unicode",
        "sub_type",
    ):
        return _FAMILIES[family]
    if family in ("date", "datetime") and rest.endswith("parsing"):
        return _FAMILIES[family]
    code = (
        kind
        if re.fullmatch(r"[a-z][a-z0-9_]{0,63}", kind) and kind not in ("value_error", "assertion_error")
        else "invalid"
    )
    if secret:
        return code, "was refused by the importer's check"
    if kind in ("value_error", "assertion_error") and "error" in context:
        return code, str(context["error"]) or "was refused by the importer's check"
    return code, str(error["msg"])

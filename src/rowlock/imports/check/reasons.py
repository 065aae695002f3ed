"""Why a cell or row was rejected: stable codes, and reasons for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

CODES: dict[str, str] = {
    "required": "the cell is empty, and the field has no default",
    "bad_text": "the text contains NUL or U+FFFD: its encoding was damaged before the upload",
    "cell_error": "the cell contains a spreadsheet error, such as #DIV/0!",
    "no_value": "the cell is a formula that was never computed",
    "not_a_number": "the text is not a number in the declared formats (`Formats`)",
    "not_an_integer": "the number has a fraction, or the text is not a whole number",
    "rounded": "the number has more digits than a spreadsheet program or the column can hold and would be rounded",
    "nan": "the value is NaN or infinity",
    "out_of_range": "the value is too small or too large",
    "too_many_digits": "the number has more digits than the field allows",
    "too_many_places": "the number has more decimal places than the field allows",
    "not_a_multiple": "the number is not a multiple of the field's `multiple_of`",
    "too_long": "the text is longer than the field allows",
    "too_short": "the text is shorter than the field requires",
    "bad_format": "the text does not match the field's pattern",
    "not_a_date": "the text is not a date in the declared formats (`Formats`)",
    "not_a_datetime": "the text is not a date with a time in the declared formats (`Formats`)",
    "not_a_time": "the text is not a time of day",
    "has_a_time": "the field is a date, and the cell has a time too",
    "time_zone": "the time zone is missing, or there is one where none is allowed",
    "not_a_yes_no": "the text is not one of the words for yes and no",
    "not_one_of": "the value is not one of the values that the field allows",
    "not_a_uuid": "the text is not a UUID",
    "not_json": "the text is not JSON",
    "not_text": "the value is not text",
    "invalid": "the importer's own validator, or a check of pydantic without a code in this table, rejected the value",
    "check_failed": "the importer's own validator raised an unexpected exception",
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
        lambda c: f"must match the pattern {c['pattern']}",
    ),
    "greater_than_equal": ("out_of_range", _least("ge")),
    "greater_than": ("out_of_range", _least("gt")),
    "less_than_equal": ("out_of_range", _least("le")),
    "less_than": ("out_of_range", _least("lt")),
    "multiple_of": ("not_a_multiple", lambda c: f"must be a multiple of {c['multiple_of']}"),
    "decimal_max_digits": ("too_many_digits", lambda c: f"must have at most {c['max_digits']} digits"),
    "decimal_max_places": (
        "too_many_places",
        lambda c: f"must have at most {c['decimal_places']} decimal places",
    ),
    "decimal_whole_digits": (
        "too_many_digits",
        lambda c: f"must have at most {c['whole_digits']} digits before the decimal point",
    ),
    "finite_number": ("nan", lambda _: "must be a finite number"),
    "enum": ("not_one_of", lambda c: f"must be {c['expected']}"),
    "literal_error": ("not_one_of", lambda c: f"must be {c['expected']}"),
    "timezone_aware": ("time_zone", lambda _: "must have a time zone, for example 2026-01-31T10:00:00+01:00"),
    "timezone_naive": ("time_zone", lambda _: "must not have a time zone"),
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
        return code, "rejected by the importer's validator"
    if kind in ("value_error", "assertion_error") and "error" in context:
        return code, str(context["error"]) or "rejected by the importer's validator"
    return code, str(error["msg"])

"""Numbers as people write them: one pattern, made from the declared formats, for single cells and for whole columns."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from rowlock.imports.checking.reasons import BadCell
from rowlock.imports.formats import GROUPS, Formats

DIGITS_MAX = 1_000  # of one number; more are no number that anyone wrote
EXPONENT_MAX = 400
BLANK = "[ \u00a0\u2009\u202f]"
EXPONENT = "(?:[eE][+-]?[0-9]{1,6})?"
_SHEET = Context(prec=15, rounding=ROUND_HALF_EVEN)  # what a spreadsheet program shows of a number
_NOT_FINITE = frozenset({"nan", "inf", "infinity", "-inf", "-infinity", "+inf", "+infinity", "-nan", "+nan"})


def number_pattern(formats: Formats) -> str:
    """What a number looks like, its sign and its point included; the same in Python's engine and in Rust's."""
    point = re.escape(formats.decimal)
    whole = "[0-9]+"
    if formats.thousands:
        whole = f"(?:[0-9]{{1,3}}(?:[{re.escape(GROUPS[formats.thousands])}][0-9]{{3}})+|[0-9]+)"
    return f"[+-]?(?:{whole}(?:{point}[0-9]+)?|{point}[0-9]+)"


def currency_patterns(formats: Formats) -> tuple[str, str] | None:
    """What stands before a number (behind its sign) and behind it, where currency signs are declared."""
    if not formats.currency:
        return None
    signs = "|".join(re.escape(sign) for sign in sorted(formats.currency, key=len, reverse=True))
    return f"^([+-]?)(?:{signs}){BLANK}*", f"{BLANK}*(?:{signs})$"


def groups(formats: Formats) -> str:
    """The characters that may stand between thousands."""
    return GROUPS[formats.thousands] if formats.thousands else ""


@lru_cache(maxsize=256)
def _compiled(formats: Formats, exponent: bool) -> re.Pattern[str]:
    return re.compile(number_pattern(formats) + (EXPONENT if exponent else ""))


def read_number(text: str, formats: Formats, *, exponent: bool) -> str:
    """The number in the plain notation of programs (-1234.5); BadCell, with a suggestion where there is one."""
    bare = text
    if patterns := currency_patterns(formats):
        bare = re.sub(patterns[1] + r"\Z", "", re.sub(patterns[0], r"\1", bare))
    if len(bare) > DIGITS_MAX or not _compiled(formats, exponent).fullmatch(bare):
        raise _no_number(text, formats)
    for sign in groups(formats):
        bare = bare.replace(sign, "")
    return bare.replace(formats.decimal, ".")


def read_integer(text: str, formats: Formats, *, exponent: bool) -> int:
    """A whole number. A fraction of one or two zeros is let pass (5.0); 5.000 may be five thousand, so it is not."""
    try:
        plain = read_number(text, formats, exponent=exponent)
    except BadCell as problem:
        code = "not_an_integer" if problem.code == "not_a_number" else problem.code
        raise BadCell(code, problem.reason.replace("not a number", "not a whole number")) from None
    if exponent and "e" in plain.lower():
        number = _sheet_number(plain)
        if number != number.to_integral_value():
            raise BadCell("not_an_integer", "is not a whole number: it has a fraction")
        value = int(number)
    else:
        whole, _, behind = plain.partition(".")
        if behind not in ("", "0", "00") or whole in ("", "+", "-"):
            if exponent and not behind.strip("0"):
                return read_integer(whole, Formats(), exponent=False)
            raise BadCell("not_an_integer", "is not a whole number: it has a fraction")
        value = int(whole)
    if not -(2**63) <= value < 2**63:
        raise BadCell("out_of_range", "is too large: a whole number has at most 18 digits here")
    return value


def read_decimal(text: str, formats: Formats, *, sheet: bool) -> Decimal:
    """An exact number. Of a spreadsheet's own fractions, the 15 digits that it shows: 59.97, not 59.970000000000006."""
    plain = read_number(text, formats, exponent=sheet)
    if not sheet:
        return Decimal(plain)
    return _sheet_number(plain)


def read_float(text: str, formats: Formats) -> float:
    """A floating number; one that would be infinite is out of range."""
    value = float(read_number(text, formats, exponent=True))
    if value in (float("inf"), float("-inf")):
        raise BadCell("out_of_range", "is too large for a floating number")
    return value


def _sheet_number(plain: str) -> Decimal:
    number = Decimal(plain)
    if abs(number.adjusted()) > EXPONENT_MAX and number:
        raise BadCell("out_of_range", "is too large or too small")
    if number != number.to_integral_value():
        number = _SHEET.plus(number)
    return number


def _no_number(text: str, formats: Formats) -> BadCell:
    if text.casefold() in _NOT_FINITE:
        return BadCell("nan", "is not a number that can be stored: NaN and infinity are refused")
    other = "," if formats.decimal == "." else "."
    if re.fullmatch(rf"[+-]?[0-9]{{1,30}}{re.escape(other)}[0-9]{{1,30}}", text):
        named = {",": "decimal comma", ".": "decimal point"}[other]
        hint = f"write {text.replace(other, formats.decimal)}; or this import must declare the {named}"
        if re.fullmatch(rf"[+-]?[0-9]{{1,3}}{re.escape(other)}[0-9]{{3}}", text):  # a thousand, or one and a bit?
            hint = f"write {text.replace(other, '')} or {text.replace(other, formats.decimal)}, whichever is meant"
        return BadCell("not_a_number", f"is not a number as this import writes them: {hint}")
    if re.fullmatch(r"[+-]?[0-9]{1,3}(?:([,.' \u00a0\u2009\u202f\u2019_])[0-9]{3})+(?:[.,][0-9]{1,30})?", text):
        point = {".": "point", ",": "comma"}[formats.decimal]
        return BadCell(
            "not_a_number",
            f"is not a number as this import writes them: leave out the signs between thousands, and write a decimal "
            f"{point} where there is a fraction",
        )
    if re.fullmatch(r"[+-]?[0-9.,]{1,40}[eE][+-]?[0-9]{1,6}", text):
        return BadCell("not_a_number", "is not a number in plain digits: write it without an exponent")
    if text.endswith("%"):
        return BadCell("not_a_number", "is not a number: write it without the percent sign")
    if re.search(r"[0-9]", text) and re.search(r"[^0-9.,+\- ]", text):
        return BadCell("not_a_number", "is not a number: write the digits alone, without currency, unit or brackets")
    return BadCell("not_a_number", "is not a number")

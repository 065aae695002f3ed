"""Read numbers in single cells; their pattern, made from the declared formats, also serves whole columns."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from rowlock.imports.check.reasons import BadCell
from rowlock.imports.formats import GROUPS, Formats

DIGITS_MAX = 1_000  # characters of one number; real data has no longer ones
EXPONENT_MAX = 400
FLOAT_DIGITS = 15
FLOAT_MIN = 1e-290
BLANK = "[ \u00a0\u2009\u202f]"
EXPONENT = "(?:[eE][+-]?[0-9]{1,6})?"
_SHEET = Context(prec=15, rounding=ROUND_HALF_EVEN)  # the digits of a number that a spreadsheet program shows
_THOUSANDS = re.compile("[+-]?[1-9][0-9]{0,2}")  # what may precede a thousands separator and three digits
_NOT_FINITE = frozenset({"nan", "inf", "infinity", "-inf", "-infinity", "+inf", "+infinity", "-nan", "+nan"})


def number_pattern(formats: Formats) -> str:
    """Return the pattern of a number with sign and point; it means the same to the regex engines of Python and Rust."""
    point = re.escape(formats.decimal)
    whole = "[0-9]+"
    if formats.thousands:
        whole = f"(?:[0-9]{{1,3}}(?:[{re.escape(GROUPS[formats.thousands])}][0-9]{{3}})+|[0-9]+)"
    return f"[+-]?(?:{whole}(?:{point}[0-9]+)?|{point}[0-9]+)"


def currency_patterns(formats: Formats) -> tuple[str, str] | None:
    """Return the patterns of a currency sign before a number (after its sign) and after it; None if not declared."""
    if not formats.currency:
        return None
    signs = "|".join(re.escape(sign) for sign in sorted(formats.currency, key=len, reverse=True))
    return f"^([+-]?)(?:{signs}){BLANK}*", f"{BLANK}*(?:{signs})$"


def groups(formats: Formats) -> str:
    """Return the accepted thousands separators."""
    return GROUPS[formats.thousands] if formats.thousands else ""


@lru_cache(maxsize=256)
def _compiled(formats: Formats, exponent: bool) -> re.Pattern[str]:
    return re.compile(number_pattern(formats) + (EXPONENT if exponent else ""))


def read_number(text: str, formats: Formats, *, exponent: bool) -> str:
    """Return the number in plain notation (-1234.5); raises BadCell, with a suggestion if possible."""
    bare = text
    if patterns := currency_patterns(formats):
        # Matching only from the first of several blanks keeps the search linear.
        bare = re.sub(rf"(?<!{BLANK}){patterns[1]}\Z", "", re.sub(patterns[0], r"\1", bare))
    if len(bare) > DIGITS_MAX or not _compiled(formats, exponent).fullmatch(bare):
        raise _no_number(text, formats)
    for sign in groups(formats):
        bare = bare.replace(sign, "")
    return bare.replace(formats.decimal, ".")


def read_integer(text: str, formats: Formats, *, exponent: bool) -> int:
    """Return a whole number; raises BadCell. As text, 5.0 and 5.00 are accepted, but 5.000 may mean five thousand."""
    try:
        plain = read_number(text, formats, exponent=exponent)
    except BadCell as problem:
        if problem.code != "not_a_number":
            raise
        reason = _no_number(text, formats, whole=True).reason
        raise BadCell("not_an_integer", reason.replace("not a valid number", "not a whole number")) from None
    if exponent and "e" in plain.lower():
        number = sheet_number(plain)
        if number != number.to_integral_value():
            raise BadCell("not_an_integer", "not a whole number: it has a fraction")
        value = int(number)
    else:
        whole, _, behind = plain.partition(".")
        if behind not in ("", "0", "00") or whole in ("", "+", "-"):
            if exponent and not behind.strip("0"):
                return read_integer(whole, Formats(), exponent=False)
            why = "it has a fraction" if exponent else _fraction(whole, behind)  # typed ones have no separators
            raise BadCell("not_an_integer", f"not a whole number: {why}")
        value = int(whole)
    if not -(2**63) <= value < 2**63:
        raise BadCell("out_of_range", "too large: whole numbers have at most 18 digits")
    return value


def read_decimal(text: str, formats: Formats, *, sheet: bool) -> Decimal:
    """Return an exact number; raises BadCell.

    If `sheet`, fractions are rounded to the 15 digits that a spreadsheet shows: 59.97, not 59.970000000000006.
    """
    plain = read_number(text, formats, exponent=sheet)
    if not sheet:
        return Decimal(plain)
    return sheet_number(plain)


def read_float(text: str, formats: Formats) -> float:
    """Return a float; raises BadCell if the float, printed with as many digits as the cell, differs from the cell."""
    plain = read_number(text, formats, exponent=True)
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise BadCell("out_of_range", "too large for a floating-point number")
    # A float keeps 15 digits of any number that is not close to zero.
    digits, power = _digits(plain)
    if len(digits) > FLOAT_DIGITS or abs(value) < FLOAT_MIN:
        written = (
            f"{digits[:1] or '0'}{'.' if digits[1:] else ''}{digits[1:]}e{'-' if power < 0 else '+'}{abs(power):02d}"
        )
        if f"{abs(value):.{max(len(digits), 1) - 1}e}" != written:
            raise BadCell("rounded", "more digits than a floating-point number can hold")
    return value


def _digits(plain: str) -> tuple[str, int]:
    """Return the digits from the first to the last that is not zero, and the power of ten of the first one."""
    mantissa, _, exponent = plain.lower().partition("e")
    whole, _, behind = mantissa.lstrip("+-").partition(".")
    digits = (whole + behind).lstrip("0")
    return digits.rstrip("0"), len(digits) - len(behind) - 1 + int(exponent or 0) if digits else 0


def sheet_number(plain: str) -> Decimal:
    """Return a float as a spreadsheet program shows it, fractions rounded to 15 digits; raises BadCell."""
    number = Decimal(plain)
    if abs(number.adjusted()) > EXPONENT_MAX and number:
        raise BadCell("out_of_range", "too large or too small")
    if number != number.to_integral_value():
        number = _SHEET.plus(number)
    return number


def _fraction(whole: str, behind: str) -> str:
    """Return what is wrong with 1,000, 1.000 or 12.5 as a whole number; the separator does not show what is meant."""
    if _THOUSANDS.fullmatch(whole) and len(behind) == 3:
        return f"write {whole}{behind}" + (f" or {whole}" if behind == "000" else " if you mean that")
    return "it has a fraction" if behind.strip("0") else f"write {whole}"


def _no_number(text: str, formats: Formats, *, whole: bool = False) -> BadCell:
    if text.casefold() in _NOT_FINITE:
        return BadCell("nan", "not a valid number: NaN and infinity are not allowed")
    other = "," if formats.decimal == "." else "."
    if re.fullmatch(rf"[+-]?[0-9]{{1,30}}{re.escape(other)}[0-9]{{1,30}}", text):
        before, _, behind = text.partition(other)
        thousands = _THOUSANDS.fullmatch(before) and len(behind) == 3  # 1,234 may also be 1.234
        if whole:
            return BadCell("not_a_number", f"not a valid number: {_fraction(before, behind)}")
        hint = f"write {text.replace(other, formats.decimal)}"
        if thousands:
            hint = f"write {text.replace(other, '')} or {text.replace(other, formats.decimal)}"
        return BadCell("not_a_number", f"not a valid number: {hint}")
    if re.fullmatch(r"[+-]?[0-9]{1,3}(?:([,.' \u00a0\u2009\u202f\u2019_])[0-9]{3})+(?:[.,][0-9]{1,30})?", text):
        point = {".": "point", ",": "comma"}[formats.decimal]
        fraction = "" if whole else f", and use a decimal {point} for fractions"
        return BadCell("not_a_number", f"not a valid number: remove the thousands separators{fraction}")
    if re.fullmatch(r"[+-]?[0-9.,]{1,40}[eE][+-]?[0-9]{1,6}", text):
        return BadCell("not_a_number", "not a valid number: write it without an exponent")
    if text.endswith("%"):
        return BadCell("not_a_number", "not a valid number: remove the percent sign")
    if re.search(r"[0-9]", text) and re.search(r"[^0-9.,+\- ]", text):
        return BadCell("not_a_number", "not a valid number: write only the digits, without currency, unit or brackets")
    return BadCell("not_a_number", "not a valid number")

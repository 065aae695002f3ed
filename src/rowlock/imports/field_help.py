"""Field help: one sentence on what a column accepts, for the people who fill in the file."""

from __future__ import annotations

from rowlock.imports.fields import Field
from rowlock.imports.formats import Formats
from rowlock.storage.tables import Kind

_CHOICES_MAX = 20
_DAYS = {"day_first": "31/01/2026", "month_first": "01/31/2026", "year_first": "2026/01/31"}
_BOUNDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


def accepts(field: Field) -> str:
    """Return one sentence without its full stop: "a number, such as 1,234.50; at least 0; may be empty"."""
    told = [field.what or _kind(field), *_limits(field)]
    if field.formats.blank_words:
        told.append(f"these also mean empty: {_or(field.formats.blank_words)}")
    if field.nullable or field.has_default:
        told.append("may be empty")
    return "; ".join(told)


def _kind(field: Field) -> str:
    formats = field.formats
    if field.choices:
        more = len(field.choices) - _CHOICES_MAX
        return f"one of: {', '.join(field.choices[:_CHOICES_MAX])}" + (f" and {more:,} more" if more > 0 else "")
    if field.container:
        return "JSON"
    match field.kind:
        case Kind.INTEGER:
            return f"a whole number, such as {_grouped('1234', formats)}"
        case Kind.DECIMAL | Kind.FLOAT:
            return f"a number, such as {_number(field)}"
        case Kind.BOOLEAN:
            return f"yes: {_or(formats.true_words)}; no: {_or(formats.false_words)}"
        case Kind.DATE:
            return f"a date, such as {_or(['2026-01-31', *(_DAYS[order] for order in formats.dates)])}"
        case Kind.DATETIME:
            return "a date with a time, such as 2026-01-31T14:30:00"
        case Kind.TIME:
            return "a time, such as 14:30"
        case Kind.UUID:
            return "a UUID"
        case Kind.JSON:
            return "JSON"
        case Kind.TEXT:
            return "text"


def _limits(field: Field) -> list[str]:
    told = [words.format(bound) for name, words in _BOUNDS.items() if (bound := getattr(field, name)) is not None]
    if field.multiple_of is not None:
        told.append(f"a multiple of {field.multiple_of}")
    if field.places is not None and field.kind is Kind.DECIMAL:
        told.append(f"at most {field.places} decimal places")
    if field.length_max is not None and field.kind is Kind.TEXT:
        told.append(f"at most {field.length_max:,} characters")
    if field.pattern is not None and field.what is None:
        told.append(f"must match the pattern {field.pattern}")
    return told


def _number(field: Field) -> str:
    places = 2 if field.places is None else min(field.places, 2)
    number = _grouped("1234", field.formats) + (field.formats.decimal + "50"[:places] if places else "")
    signs = field.formats.currency
    if not signs:
        return number
    return f"{number} or {signs[0]}{' ' if signs[0].isalpha() else ''}{number}"


def _grouped(digits: str, formats: Formats) -> str:
    return digits if formats.thousands is None else f"{digits[:-3]}{formats.thousands}{digits[-3:]}"


def _or(words: list[str] | tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

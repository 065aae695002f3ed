"""Filters of job pages: parsed from the query, checked, and written into the page's links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rowlock.management.schemas.base import Cursor, Name
from rowlock.storage.records import Status

STATUSES = tuple(each.value for each in Status)
_NAMES = {"type": "The type", "queue": "The queue", "companyId": "The company"}
_TIMES = {"since": "The first time", "until": "The last time"}
_REASON_LENGTH_MAX = 200
_name: TypeAdapter[str] = TypeAdapter(Name)
_cursor: TypeAdapter[str] = TypeAdapter(Cursor)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A filter on jobs; without a key, all values match. `wrong` explains to people which values are not valid."""

    said: Mapping[str, str]  # values by query parameter, as given, in a fixed order
    wrong: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.said)

    @property
    def asked(self) -> dict[str, Any]:
        """The filter as arguments of the management service."""
        words: dict[str, Any] = {"company_id" if key == "companyId" else key: value for key, value in self.said.items()}
        for key in _TIMES:
            if key in words:
                words[key] = moment_of(words[key])
        return words

    def local(self, key: str) -> str:
        """Return a time of the filter as a form field has it."""
        moment = moment_of(self.said.get(key, ""))
        return "" if moment is None else spelled(moment)

    def link(self, path: str, **others: str | None) -> str:
        """Return a path with this filter; `others` replace single values, None removes one."""
        said = {key: value for key, value in {**self.said, **others}.items() if value is not None}
        return f"{path}?{urlencode(said)}" if said else path


def narrowed(query: QueryParams, *keys: str) -> Narrowed:
    """Return the filter on these keys; ignores empty form fields, except the reason."""
    said, wrong = dict[str, str](), list[str]()
    for key in keys:
        # Spaces around a name come from typing or pasting; in a reason they belong to it.
        value = query.get(key, "") if key == "reason" else query.get(key, "").strip()
        if key not in query or (not value and key != "reason"):
            continue
        fault = _fault(key, value)
        if fault is not None:
            wrong.append(fault)
        said[key] = value
    return Narrowed(said, tuple(wrong))


def cursor_of(query: QueryParams) -> str | None:
    """Return the cursor of the page; None for the first page and for a malformed cursor."""
    try:
        return _cursor.validate_python(query["cursor"])
    except (KeyError, ValidationError):
        return None


def tidied(request: Request) -> Response | None:
    """Return a redirect to the address without a form's empty fields, or None if it has none."""
    given = request.query_params.multi_items()
    kept = [(key, value) for key, value in given if value.strip() or key == "reason"]
    if len(kept) == len(given):
        return None
    return RedirectResponse(str(request.url.replace(scheme="", netloc="", query=urlencode(kept))), 303)


def spelled(moment: datetime) -> str:
    """Return a time as a form field has it, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def lately(now: datetime) -> list[tuple[str, str]]:
    """Return the most common time spans: their names and start times."""
    spans = {"last hour": timedelta(hours=1), "last day": timedelta(days=1), "last 7 days": timedelta(days=7)}
    return [(words, spelled(now - span)) for words, span in spans.items()]


def _fault(key: str, value: str) -> str | None:
    if key == "status":
        return None if value in STATUSES else f"No status is called “{value}”; the statuses are {', '.join(STATUSES)}."
    if key in _TIMES:
        return None if moment_of(value) else f"{_TIMES[key]} is not a valid time; write it like 2030-01-31T08:00 (UTC)."
    if key == "reason":
        fits = len(value) <= _REASON_LENGTH_MAX and "\x00" not in value
        return None if fits else "The reason is too long."
    try:
        _name.validate_python(value)
    except ValidationError:
        return f"{_NAMES[key]} is longer than 200 characters or contains characters that are not allowed."
    return None


def moment_of(text: str) -> datetime | None:
    """Parse an ISO 8601 time (without an offset: UTC); returns None if it is malformed."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment

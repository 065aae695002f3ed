"""Which jobs a page is about: what its address says, checked, and said again in its links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rowlock.web.models import Cursor, Name, StatusWord

STATUSES: tuple[str, ...] = get_args(StatusWord)
_NAMES = {"type": "The type", "queue": "The queue", "companyId": "The company"}
_TIMES = {"since": "The first time", "until": "The last time"}
_REASON_LENGTH_MAX = 200
_name: TypeAdapter[str] = TypeAdapter(Name)
_cursor: TypeAdapter[str] = TypeAdapter(Cursor)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which jobs: empty fields match all. `wrong` says, for people, what of it could not be used."""

    said: Mapping[str, str]  # as the address names and spells it, in a fixed order
    wrong: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.said)

    @property
    def asked(self) -> dict[str, Any]:
        """For the desk, in its own words."""
        words: dict[str, Any] = {"company_id" if key == "companyId" else key: value for key, value in self.said.items()}
        for key in _TIMES:
            if key in words:
                words[key] = moment_of(words[key])
        return words

    def local(self, key: str) -> str:
        """A time, for a field of a form."""
        moment = moment_of(self.said.get(key, ""))
        return "" if moment is None else spelled(moment)

    def link(self, path: str, **others: str | None) -> str:
        """A path that says the same; or something else, or with None nothing, about these."""
        said = {key: value for key, value in {**self.said, **others}.items() if value is not None}
        return f"{path}?{urlencode(said)}" if said else path


def narrowed(query: QueryParams, *keys: str) -> Narrowed:
    """What the address says about these; a field of a form that was left empty says nothing."""
    said, wrong = dict[str, str](), list[str]()
    for key in keys:
        # Spaces around a name were typed or pasted; in a reason they are a part of it.
        value = query.get(key, "") if key == "reason" else query.get(key, "").strip()
        if key not in query or (not value and key != "reason"):
            continue
        fault = _fault(key, value)
        if fault is not None:
            wrong.append(fault)
        said[key] = value
    return Narrowed(said, tuple(wrong))


def cursor_of(query: QueryParams) -> str | None:
    """Where the page goes on, if it is not the first."""
    try:
        return _cursor.validate_python(query["cursor"])
    except (KeyError, ValidationError):
        return None


def tidied(request: Request) -> Response | None:
    """The way to the same page by its short address, where a form has sent fields that were left empty."""
    given = request.query_params.multi_items()
    kept = [(key, value) for key, value in given if value.strip() or key == "reason"]
    if len(kept) == len(given):
        return None
    return RedirectResponse(str(request.url.replace(scheme="", netloc="", query=urlencode(kept))), 303)


def spelled(moment: datetime) -> str:
    """A time as the field of a form has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def lately(now: datetime) -> list[tuple[str, str]]:
    """Spans that people ask for most: what they are called, and when they began."""
    spans = {"last hour": timedelta(hours=1), "last day": timedelta(days=1), "last 7 days": timedelta(days=7)}
    return [(words, spelled(now - span)) for words, span in spans.items()]


def _fault(key: str, value: str) -> str | None:
    if key == "status":
        return None if value in STATUSES else f"No status is called “{value}”; there are {', '.join(STATUSES)}."
    if key in _TIMES:
        return None if moment_of(value) else f"{_TIMES[key]} is not a time; write it like 2030-01-31T08:00 (UTC)."
    if key == "reason":
        fits = len(value) <= _REASON_LENGTH_MAX and "\x00" not in value
        return None if fits else "The reason is longer than any that is kept."
    try:
        _name.validate_python(value)
    except ValidationError:
        return f"{_NAMES[key]} is longer than 200 characters, or has some that no name has."
    return None


def moment_of(text: str) -> datetime | None:
    """A time in ISO 8601; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment

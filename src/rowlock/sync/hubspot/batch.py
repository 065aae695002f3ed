"""Batches: up to 100 records per call, each with its own result.

HubSpot answers 200 if all records were written, 207 with an error for each that was not, and 400 if one bad record
made it write none: then the batch is sent in halves, so that good records get through. If both halves are refused with
the same message, about a property that all records have, all of them fail and no more is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowlock.errors import CallFailed, CallRefused, CallUncertain, Outcome, SyncError
from rowlock.sync.call import Calls
from rowlock.sync.hubspot import paths
from rowlock.sync.hubspot.records import Record, Upsert, list_of, record_of
from rowlock.sync.response import Answer, is_refused

BATCH_MAX = 100
_REFUSALS = (400, 409)  # statuses of a batch of which nothing was written
_MISSING = re.compile(r'Property "?(\w+)"? does not exist')
_STATUSES = {"OBJECT_NOT_FOUND": 404, "CONFLICT": 409, "MISSING_SCOPES": 403}  # status of one record, by category

Entry = Record | SyncError | Outcome


async def upsert(calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert]) -> list[Entry]:
    """Create or update records by their unique property. Returns a record or an error for each, in the same order.

    If a call fails as a whole, its error is the result of each of its records. Keys must be distinct.
    """
    entries: list[Entry] = []
    for start in range(0, len(wanted), BATCH_MAX):
        part = wanted[start : start + BATCH_MAX]
        entries += await _apart(calls, kind, unique, part, await _send(calls, kind, unique, part))
    return entries


async def _send(calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert]) -> list[Entry] | CallFailed:
    """Send one call. Returns a result per record, or the CallFailed of a batch of which nothing was written."""
    inputs = [
        {"id": one.key, "idProperty": unique, "properties": dict(one.properties), "objectWriteTraceId": str(number)}
        for number, one in enumerate(wanted)
    ]
    try:
        answer = await calls.post(paths.objects(kind, "batch", "upsert"), json={"inputs": inputs})
        return entries_of(answer, kind, unique, wanted, calls.plain)
    except CallFailed as error:
        return error if error.status in _REFUSALS else [error] * len(wanted)
    except (SyncError, Outcome) as error:
        return [error] * len(wanted)


async def _apart(
    calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert], sent: list[Entry] | CallFailed
) -> list[Entry]:
    """Return a result per record. A batch that was refused as a whole is sent again in halves."""
    if not isinstance(sent, CallFailed):
        return sent
    if len(wanted) == 1 or _concerns_all(sent, wanted):
        return [sent] * len(wanted)
    middle = len(wanted) // 2
    halves = [(half, await _send(calls, kind, unique, half)) for half in (wanted[:middle], wanted[middle:])]
    if all(_same(sent, answer) for _, answer in halves) and _names_what_all_have(sent, wanted):
        return [sent] * len(wanted)
    return [entry for half, answer in halves for entry in await _apart(calls, kind, unique, half, answer)]


def entries_of(
    answer: Answer, kind: str, unique: str, wanted: Sequence[Upsert], plain: Callable[[str], str] = str
) -> list[Entry]:
    """Match the results and errors of a batch answer to its records. Returns one entry per record."""
    what = f"an upsert of {kind}"
    found: dict[int, Entry] = {}
    strangers: list[Entry] = []
    places = {one.key: number for number, one in enumerate(wanted)}
    for item in list_of(answer.json, "results", what):
        record = record_of(item, what)
        number = _place(item.get("objectWriteTraceId"), places)
        if number is None:
            number = places.get(record.properties.get(unique, ""))
        if number is None:
            strangers.append(record)
        else:
            found[number] = record
    errors = answer.json.get("errors") or []
    unclaimed: Entry = CallUncertain(f"HubSpot's response to {what} has no result for this record")
    for item in errors:
        error = _error(item, answer, plain)
        numbers = _blamed(item, places)
        for number in numbers:
            found.setdefault(number, error)
        if not numbers:
            unclaimed = error
    left = [number for number in places.values() if number not in found]
    if not errors and len(strangers) == len(left):  # all were written, and results come in our order
        found |= dict(zip(left, strangers, strict=True))
    return [found.get(number, unclaimed) for number in range(len(wanted))]


def _error(item: Any, answer: Answer, plain: Callable[[str], str]) -> SyncError:
    category = item.get("category") if isinstance(item, Mapping) else None
    about = Answer(_STATUSES.get(str(category), 400), item, answer.headers).cleaned(plain)
    kind = CallRefused if is_refused(about) else CallFailed
    return kind(f"{about.category or 'error'}: {about.message or 'HubSpot does not say why'}", answer=about)


def _blamed(item: Any, places: Mapping[str, int]) -> list[int]:
    """Return the numbers of the records that an error is about, by our trace number or by key."""
    context = item.get("context") if isinstance(item, Mapping) else None
    if not isinstance(context, Mapping):
        return []
    traced = [_place(value, places) for value in _texts(context.get("objectWriteTraceId"))]
    numbers = [number for number in traced if number is not None]
    return numbers or [places[value] for value in _texts(context.get("ids")) if value in places]


def _place(trace: Any, places: Mapping[str, int]) -> int | None:
    if not isinstance(trace, str) or not trace.isascii() or not trace.isdigit() or len(trace) > 3:
        return None
    number = int(trace)
    return number if number < len(places) else None


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _concerns_all(error: CallFailed, wanted: Sequence[Upsert]) -> bool:
    """Whether halves would fail the same way, because the error is about a property that all records use."""
    missing = _MISSING.search(str(error))
    return "non-unique" in str(error) or (missing is not None and all(missing[1] in one.properties for one in wanted))


def _same(refusal: CallFailed, answer: list[Entry] | CallFailed) -> bool:
    return isinstance(answer, CallFailed) and answer.answer.message == refusal.answer.message


def _names_what_all_have(refusal: CallFailed, wanted: Sequence[Upsert]) -> bool:
    """Whether the refusal names a property that all records write, and no key or value that only some have."""
    body = refusal.answer.json
    text = f"{refusal.answer.message} {body.get('errors') if isinstance(body, Mapping) else ''}"
    if any(one.key in text for one in wanted):
        return False
    shown = [{item for item in one.properties.items() if item[1] and item[1] in text} for one in wanted]
    names = set.intersection(*(set(one.properties) for one in wanted))
    return all(each == shown[0] for each in shown) and any(re.search(rf"\b{name}\b", text) for name in names)

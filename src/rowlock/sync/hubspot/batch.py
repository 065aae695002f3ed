"""Batches: up to 100 records in a call, each settled on its own.

HubSpot answers 200 when all is done, 207 with an error per record that is not, and 400 when it has done nothing since
one of them is bad: then the halves are sent, so that whoever is good gets through. Where both are refused in the same
words, for a property that all of them have, the fault is everybody's, and no more is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowlock.errors import CallFailed, CallRefused, CallUncertain, Outcome, SyncError
from rowlock.sync.answer import Answer, is_refused
from rowlock.sync.call import Calls
from rowlock.sync.hubspot import paths
from rowlock.sync.hubspot.records import Record, Upsert, list_of, record_of

BATCH_MAX = 100
_REFUSALS = (400, 409)  # of a batch: nothing of it was done
_MISSING = re.compile(r'Property "?(\w+)"? does not exist')
_STATUSES = {"OBJECT_NOT_FOUND": 404, "CONFLICT": 409, "MISSING_SCOPES": 403}  # of one record, by category

Entry = Record | SyncError | Outcome


async def upsert(calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert]) -> list[Entry]:
    """Create or update these records by their unique property: per record what became of it, in the same order.

    A call that fails as a whole is what became of each of its records. No two of them may have the same key.
    """
    entries: list[Entry] = []
    for start in range(0, len(wanted), BATCH_MAX):
        part = wanted[start : start + BATCH_MAX]
        entries += await _apart(calls, kind, unique, part, await _send(calls, kind, unique, part))
    return entries


async def _send(calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert]) -> list[Entry] | CallFailed:
    """What became of each; or the refusal of all, nothing having been done."""
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
    calls: Calls, kind: str, unique: str, wanted: Sequence[Upsert], told: list[Entry] | CallFailed
) -> list[Entry]:
    """What became of each, those that were refused together having been sent in halves."""
    if not isinstance(told, CallFailed):
        return told
    if len(wanted) == 1 or _concerns_all(told, wanted):
        return [told] * len(wanted)
    middle = len(wanted) // 2
    halves = [(half, await _send(calls, kind, unique, half)) for half in (wanted[:middle], wanted[middle:])]
    if all(_same(told, answer) for _, answer in halves) and _names_what_all_have(told, wanted):
        return [told] * len(wanted)
    return [entry for half, answer in halves for entry in await _apart(calls, kind, unique, half, answer)]


def entries_of(
    answer: Answer, kind: str, unique: str, wanted: Sequence[Upsert], plain: Callable[[str], str] = str
) -> list[Entry]:
    """What an answer to a batch says of each of its records."""
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
    unclaimed: Entry = CallUncertain(f"HubSpot's answer to {what} does not say what became of this one")
    for item in errors:
        error = _error(item, answer, plain)
        numbers = _blamed(item, places)
        for number in numbers:
            found.setdefault(number, error)
        if not numbers:
            unclaimed = error
    left = [number for number in places.values() if number not in found]
    if not errors and len(strangers) == len(left):  # all is done, and they come in our order
        found |= dict(zip(left, strangers, strict=True))
    return [found.get(number, unclaimed) for number in range(len(wanted))]


def _error(item: Any, answer: Answer, plain: Callable[[str], str]) -> SyncError:
    category = item.get("category") if isinstance(item, Mapping) else None
    about = Answer(_STATUSES.get(str(category), 400), item, answer.headers).cleaned(plain)
    kind = CallRefused if is_refused(about) else CallFailed
    return kind(f"{about.category or 'error'}: {about.message or 'HubSpot does not say why'}", answer=about)


def _blamed(item: Any, places: Mapping[str, int]) -> list[int]:
    """Which records an error is about: by our own number, or by key."""
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
    """Whether halves would fail alike: what is wrong is not one of the records, but a property that all of them use."""
    missing = _MISSING.search(str(error))
    return "non-unique" in str(error) or (missing is not None and all(missing[1] in one.properties for one in wanted))


def _same(refusal: CallFailed, told: list[Entry] | CallFailed) -> bool:
    return isinstance(told, CallFailed) and told.answer.message == refusal.answer.message


def _names_what_all_have(refusal: CallFailed, wanted: Sequence[Upsert]) -> bool:
    """Whether it is about a property that all of them write; where it shows a value, about one that is everybody's."""
    body = refusal.answer.json
    text = f"{refusal.answer.message} {body.get('errors') if isinstance(body, Mapping) else ''}"
    if any(one.key in text for one in wanted):
        return False
    shown = [{item for item in one.properties.items() if item[1] and item[1] in text} for one in wanted]
    names = set.intersection(*(set(one.properties) for one in wanted))
    return all(each == shown[0] for each in shown) and any(re.search(rf"\b{name}\b", text) for name in names)

"""HubSpot's CRM: contacts, companies, deals and their associations.

No method creates a duplicate if it is repeated. Contacts are identified by e-mail address, companies and deals by a
unique property, and HubSpot enforces both. Its search lags behind writes, so no decision rests on a search alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowlock.errors import CallFailed
from rowlock.sync.call import Calls
from rowlock.sync.hubspot import paths
from rowlock.sync.hubspot.batch import Entry, upsert
from rowlock.sync.hubspot.properties import Ensured, Property, ensure_properties
from rowlock.sync.hubspot.records import CONTACTS, EMAIL, Record, Upsert, list_of, record_of
from rowlock.sync.response import Answer

SEARCH_GROUP = "search"
SEARCH_MAX = 200
_EXISTING = re.compile(r"Existing ID:\s*(\d+)")


class HubSpot:
    """The CRM for one attempt of a job. A method makes one call unless its docstring says otherwise."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # -- contacts ----------------------------------------------------------------------------------

    async def contact(self, email: str, properties: Iterable[str] = ()) -> Record | None:
        """Return the contact with this address, with these properties; None if there is none."""
        return await self.find(CONTACTS, EMAIL, email, properties)

    async def create_contact(self, email: str, properties: Mapping[str, str] | None = None) -> Record:
        """Create a contact, or return the existing one unchanged (`created` is False). One to three calls."""
        given = dict(properties or {})
        body = {"properties": {EMAIL: email, **given}}
        answer = await self._calls.post(paths.objects(CONTACTS), json=body, accept=[409])
        if answer.status == 409:
            return await self._existing(email, list(given), answer)
        return replace(record_of(answer.json, "the creation of a contact"), created=True)

    async def find_or_create_contact(self, email: str, properties: Mapping[str, str] | None = None) -> Record:
        """Return the contact with this address, or create it. Best if it probably exists. One to four calls."""
        return await self.contact(email, properties or ()) or await self.create_contact(email, properties)

    async def upsert_contacts(self, wanted: Sequence[Upsert]) -> list[Entry]:
        """Write properties to contacts by e-mail address, creating missing ones. 100 contacts per call."""
        return await upsert(self._calls, CONTACTS, EMAIL, wanted)

    async def _existing(self, email: str, properties: Sequence[str], refusal: Answer) -> Record:
        """Return the contact that a creation collided with, by address or by the id in the refusal.

        Raises CallFailed if neither finds it.
        """
        found = await self.contact(email, properties)
        if found is None and (named := _EXISTING.search(refusal.message)):
            found = await self.get(CONTACTS, named[1], properties)
        if found is None:
            raise CallFailed(
                f"HubSpot says that a contact with this address exists, and shows none: {refusal.message}",
                answer=refusal,
            )
        return found

    # -- any kind of record ------------------------------------------------------------------------

    async def get(self, kind: str, record_id: str, properties: Iterable[str] = ()) -> Record | None:
        """Return the record with this id; None if there is none."""
        return await self._read(kind, record_id, {"properties": ",".join(properties)})

    async def find(self, kind: str, unique: str, value: str, properties: Iterable[str] = ()) -> Record | None:
        """Return the record whose unique property has this value, None if there is none. It sees the latest writes."""
        names = ",".join(dict.fromkeys([unique, *properties]))
        return await self._read(kind, value, {"idProperty": unique, "properties": names})

    async def update(self, kind: str, record_id: str, properties: Mapping[str, str]) -> Record:
        """Write these properties to the record with this id."""
        answer = await self._calls.patch(paths.objects(kind, record_id), json={"properties": dict(properties)})
        return record_of(answer.json, f"an update of {kind}")

    async def upsert(self, kind: str, unique: str, key: str, properties: Mapping[str, str]) -> Record:
        """Write properties to the record whose unique property has this value, or create it."""
        (entry,) = await upsert(self._calls, kind, unique, [Upsert(key, properties)])
        if isinstance(entry, Record):
            return entry
        raise entry

    async def search(
        self, kind: str, filters: Sequence[Mapping[str, str]], properties: Iterable[str] = (), *, limit: int = 10
    ) -> list[Record]:
        """Return records that match all filters, oldest first. Very recent writes may be missing."""
        asked: dict[str, Any] = {
            "filterGroups": [{"filters": [dict(one) for one in filters]}],
            "properties": list(properties),
            "sorts": ["createdate"],
            "limit": min(limit, SEARCH_MAX),
        }
        answer = await self._calls.post(paths.objects(kind, "search"), json=asked, group=SEARCH_GROUP)
        what = f"a search for {kind}"
        return [record_of(item, what) for item in list_of(answer.json, "results", what)]

    async def associate(self, kind: str, record_id: str, to_kind: str, to_id: str) -> None:
        """Associate two records with the default association of their kinds. Idempotent."""
        await self._calls.put(paths.association(kind, record_id, to_kind, to_id))

    async def ensure_properties(self, kind: str, wanted: Sequence[Property]) -> Ensured:
        """Create missing properties and options: one call, and one more for each property created or extended."""
        return await ensure_properties(self._calls, kind, wanted)

    async def _read(self, kind: str, value: str, params: Mapping[str, str]) -> Record | None:
        asked = {name: text for name, text in params.items() if text}
        answer = await self._calls.get(paths.objects(kind, value), params=asked, accept=[404])
        return None if answer.status == 404 else record_of(answer.json, f"the question for one of {kind}")

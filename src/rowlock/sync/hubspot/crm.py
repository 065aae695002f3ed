"""HubSpot's CRM: contacts, companies, deals, and what belongs to what.

Nothing here makes a second record when it is done twice. A contact is known by its e-mail address, companies and deals
by a unique property, and HubSpot itself guards both; its search lags behind writes, so it never decides alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowlock.errors import CallFailed
from rowlock.sync.answer import Answer
from rowlock.sync.call import Calls
from rowlock.sync.hubspot import paths
from rowlock.sync.hubspot.batch import Entry, upsert
from rowlock.sync.hubspot.properties import Ensured, Property, ensure_properties
from rowlock.sync.hubspot.records import CONTACTS, EMAIL, Record, Upsert, list_of, record_of

SEARCH_GROUP = "search"
SEARCH_MAX = 200
_EXISTING = re.compile(r"Existing ID:\s*(\d+)")


class HubSpot:
    """The CRM as one attempt of a job sees it: every method makes one call, or as many as its text says."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # -- contacts ----------------------------------------------------------------------------------

    async def contact(self, email: str, properties: Iterable[str] = ()) -> Record | None:
        """The contact with this address, with these properties; None without one."""
        return await self.find(CONTACTS, EMAIL, email, properties)

    async def create_contact(self, email: str, properties: Mapping[str, str] | None = None) -> Record:
        """A new contact; or, when one has this address, that one as it is: `created` tells. One call, or two."""
        given = dict(properties or {})
        body = {"properties": {EMAIL: email, **given}}
        answer = await self._calls.post(paths.objects(CONTACTS), json=body, accept=[409])
        if answer.status == 409:
            return await self._existing(email, list(given), answer)
        return replace(record_of(answer.json, "the creation of a contact"), created=True)

    async def find_or_create_contact(self, email: str, properties: Mapping[str, str] | None = None) -> Record:
        """The contact with this address, or a new one: for those who expect it to be there. One to three calls."""
        return await self.contact(email, properties or ()) or await self.create_contact(email, properties)

    async def upsert_contacts(self, wanted: Sequence[Upsert]) -> list[Entry]:
        """Write these properties to the contacts with these addresses, which are created if missing: 100 per call."""
        return await upsert(self._calls, CONTACTS, EMAIL, wanted)

    async def _existing(self, email: str, properties: Sequence[str], refusal: Answer) -> Record:
        """Whom a creation collided with: by address, or by the id that the refusal names."""
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
        """The record with this id; None without one."""
        return await self._read(kind, record_id, {"properties": ",".join(properties)})

    async def find(self, kind: str, unique: str, value: str, properties: Iterable[str] = ()) -> Record | None:
        """The record whose unique property has this value; None without one. It sees what was written just before."""
        names = ",".join(dict.fromkeys([unique, *properties]))
        return await self._read(kind, value, {"idProperty": unique, "properties": names})

    async def update(self, kind: str, record_id: str, properties: Mapping[str, str]) -> Record:
        """Write these properties to the record with this id."""
        answer = await self._calls.patch(paths.objects(kind, record_id), json={"properties": dict(properties)})
        return record_of(answer.json, f"an update of {kind}")

    async def upsert(self, kind: str, unique: str, key: str, properties: Mapping[str, str]) -> Record:
        """Write these properties to the record whose unique property has this value; it is created if missing."""
        (entry,) = await upsert(self._calls, kind, unique, [Upsert(key, properties)])
        if isinstance(entry, Record):
            return entry
        raise entry

    async def search(
        self, kind: str, filters: Sequence[Mapping[str, str]], properties: Iterable[str] = (), *, limit: int = 10
    ) -> list[Record]:
        """Records that pass all these filters, the oldest first; what was written a moment ago may be missing."""
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
        """Have one record belong to another, in the usual way for their kinds; again changes nothing."""
        await self._calls.put(paths.association(kind, record_id, to_kind, to_id))

    async def ensure_properties(self, kind: str, wanted: Sequence[Property]) -> Ensured:
        """Create the properties and options that are missing: one call, and one for each that is."""
        return await ensure_properties(self._calls, kind, wanted)

    async def _read(self, kind: str, value: str, params: Mapping[str, str]) -> Record | None:
        asked = {name: text for name, text in params.items() if text}
        answer = await self._calls.get(paths.objects(kind, value), params=asked, accept=[404])
        return None if answer.status == 404 else record_of(answer.json, f"the question for one of {kind}")

"""Companies and their contacts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from backoffice.hubspot.contacts import Name, Word
from backoffice.hubspot.deals import Reference
from backoffice.hubspot.vocabulary import COMPANY_KEY
from rowlock import Call
from rowlock.sync.hubspot import COMPANIES, CONTACTS, Email, HubSpot, Record

CANDIDATES_MAX = 10

Domain = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+$", max_length=200),
    AfterValidator(str.lower),
]


async def sync_company(
    call: Call,
    externalId: Reference,
    name: Name,
    domain: Domain | None = None,
    phone: Word | None = None,
    email: Email | None = None,
) -> dict[str, Any]:
    """Create or update a company, and associate the contact with this address."""
    crm = HubSpot(call)
    given = {"name": name, "domain": domain, "phone": phone}
    fresh = call.fresh({key: value for key, value in given.items() if value})
    company = await crm.find(COMPANIES, COMPANY_KEY, externalId)
    if company is None and domain is not None:
        # Two concurrent jobs would find the same company, and HubSpot has no conditional writes.
        await call.hold(f"domain:{domain}")
        company = await _unclaimed(crm, domain)
    if company is not None:
        await crm.update(COMPANIES, company.id, {COMPANY_KEY: externalId, **fresh})
    else:
        company = await crm.upsert(COMPANIES, COMPANY_KEY, externalId, {"name": name, **fresh})
    contact = None
    if email is not None:
        contact = await crm.find_or_create_contact(email)
        await crm.associate(CONTACTS, contact.id, COMPANIES, company.id)
    return {
        "companyId": company.id,
        "created": company.created,
        "contactId": None if contact is None else contact.id,
    }


async def _unclaimed(crm: HubSpot, domain: str) -> Record | None:
    """Return a company of this domain without our key: HubSpot creates companies from the addresses of contacts."""
    filters = [
        {"propertyName": "domain", "operator": "EQ", "value": domain},
        {"propertyName": COMPANY_KEY, "operator": "NOT_HAS_PROPERTY"},
    ]
    for candidate in await crm.search(COMPANIES, filters, [COMPANY_KEY], limit=CANDIDATES_MAX):
        # The search lags behind: another job may have claimed this company a moment ago.
        company = await crm.get(COMPANIES, candidate.id, [COMPANY_KEY])
        if company is not None and not company.properties.get(COMPANY_KEY):
            return company
    return None

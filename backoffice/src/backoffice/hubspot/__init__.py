"""HubSpot: writes the club's data to its CRM, as jobs of the queues `hubspot` and `hubspot.update_contact`.

| operation        | key while it waits or runs                 | what it does                                       |
| ---------------- | ------------------------------------------ | -------------------------------------------------- |
| `create_contact` | `member_creation_<email>`                  | finds or creates a contact, fills empty properties |
| `update_contact` |                                            | writes status, stage, properties: 100 per call     |
| `sync_tier`      | `tier_sync_<email>_<oldTier>_to_<newTier>` | writes the tier                                    |
| `sync_company`   |                                            | writes a company, associates a contact with it     |
| `sync_payment`   | `payment_sync_<paymentIntentId>`           | writes one won deal per payment                    |
| `sync_day_pass`  | `day_pass_sync_<paymentIntentId>`          | writes one won deal per pass                       |
| `create_deal`    |                                            | off by default: writes any other deal              |
| `sync_member`    |                                            | off by default: writes all known data of a member  |
"""

from __future__ import annotations

from typing import Any

from backoffice.application import app
from backoffice.hubspot import companies, contacts, deals
from backoffice.hubspot.vocabulary import PROPERTIES
from rowlock import Call, Integration, RateLimit, Rowlock, SettingsError
from rowlock.sync.hubspot import BATCH_MAX, SEARCH_GROUP, HubSpot, is_refused, limited, spent

SCOPES_URL = "https://app.hubspot.com/private-apps"

__all__ = ["declare", "hub"]


def declare(app: Rowlock, **options: Any) -> Integration:
    """Declare the integration and its operations from the application's settings. `options` override them."""
    settings = app.settings
    token = (settings.hubspot_token or "").strip() or None
    off = {name.strip() for name in settings.hubspot_operations_off.split(",")} - {""}
    told: dict[str, Any] = {
        "base_url": settings.hubspot_url,
        "token": token,
        "disabled": None if token else "set ROWLOCK_HUBSPOT_TOKEN",
        "limits": [
            RateLimit(settings.hubspot_calls_per_10_seconds, per_seconds=10),
            RateLimit(settings.hubspot_calls_per_day, per_seconds=86_400),
            RateLimit(settings.hubspot_searches_per_second, per_seconds=1, group=SEARCH_GROUP),
        ],
        "operations_off": off,
        "scopes_url": SCOPES_URL,
        "refused": is_refused,
        "limited": limited,
        "spent": spent,
        "cycle_seconds": settings.hubspot_cycle_seconds,
        "cycle_delay_seconds": settings.hubspot_cycle_delay_seconds,
    }
    hub = app.integration("hubspot", **told | options)
    hub.operation("create_contact", key="member_creation_{email}", about="{email}")(contacts.create_contact)
    hub.operation("update_contact", about="{email}", batch=BATCH_MAX, properties=contacts.status_properties)(
        contacts.update_contacts
    )
    hub.operation("sync_tier", key="tier_sync_{email}_{oldTier}_to_{newTier}", about="{email}")(contacts.sync_tier)
    hub.operation("sync_company", about="company:{externalId}")(companies.sync_company)
    hub.operation("sync_payment", key="payment_sync_{paymentIntentId}", about="deal:{paymentIntentId}")(
        deals.sync_payment
    )
    hub.operation("sync_day_pass", key="day_pass_sync_{paymentIntentId}", about="deal:{paymentIntentId}")(
        deals.sync_day_pass
    )
    hub.operation("create_deal", about="deal:{externalId}")(deals.create_deal)
    hub.operation("sync_member", about="{email}")(contacts.sync_member)
    hub.on_start(ensure_properties, delay_seconds=settings.hubspot_ensure_delay_seconds)
    if unknown := off - set(hub.operations):
        raise SettingsError(
            f"ROWLOCK_HUBSPOT_OPERATIONS_OFF names {', '.join(sorted(unknown))}, which HubSpot does not have; "
            f"it has {', '.join(sorted(hub.operations))}"
        )
    return hub


async def ensure_properties(call: Call) -> dict[str, Any]:
    """Create missing properties that the operations write. Runs some seconds after start-up."""
    crm = HubSpot(call)
    done = {kind: await crm.ensure_properties(kind, wanted) for kind, wanted in PROPERTIES.items()}
    return {kind: {"created": list(each.created), "extended": list(each.extended)} for kind, each in done.items()}


hub = declare(app)

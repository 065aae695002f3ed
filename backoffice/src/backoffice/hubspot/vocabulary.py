"""Values that the club and its CRM share: tiers, statuses, providers, and the properties that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowlock import Permanent
from rowlock.sync.hubspot import COMPANIES, CONTACTS, DEALS, Property

TIERS = {
    "social": "Social",
    "core": "Core",
    "premium": "Premium",
    "corporate": "Corporate",
    "founding_member": "Founding Member",
    "vip": "VIP",
}
STATUSES = {
    "pending": "Pending",
    "trialing": "Trialing",
    "active": "Active",
    "past_due": "Past due",
    "paused": "Paused",
    "cancelled": "Cancelled",
    "expired": "Expired",
}
PROVIDERS = {"stripe": "Stripe", "mindbody": "Mindbody", "manual": "Manual", "complimentary": "Complimentary"}

COMPANY_KEY = "billing_company_id"
DEAL_KEY = "billing_reference"
_PROVIDER = Property("billing_provider", "Billing provider", "enumeration", options=PROVIDERS)

PROPERTIES: Mapping[str, Sequence[Property]] = {
    CONTACTS: (
        Property("membership_tier", "Membership tier", "enumeration", options=TIERS),
        Property("membership_status", "Membership status", "enumeration", options=STATUSES),
        Property("member_since", "Member since", "date"),
        _PROVIDER,
    ),
    COMPANIES: (Property(COMPANY_KEY, "Billing company id", unique=True),),
    DEALS: (
        Property(DEAL_KEY, "Billing reference", unique=True),
        Property("billing_currency", "Billing currency"),
        _PROVIDER,
    ),
}


def tier_value(name: str) -> str:
    """Return HubSpot's value of a tier, ignoring case and spacing. Raises Permanent for an unknown tier."""
    return _value(TIERS, name, "tier")


def status_value(name: str) -> str:
    """Return HubSpot's value of a membership status. Raises Permanent for an unknown status."""
    return _value(STATUSES, name, "status")


def provider_value(name: str) -> str:
    """Return HubSpot's value of a billing provider. Raises Permanent for an unknown provider."""
    return _value(PROVIDERS, name, "provider")


def _value(options: Mapping[str, str], name: str, what: str) -> str:
    value = "_".join(name.lower().replace("-", " ").replace("_", " ").split())
    if value not in options:
        raise Permanent(
            f"HubSpot: no {what} is called {name[:50]!r}; known are {', '.join(options.values())}. "
            f"Add it to backoffice.hubspot.vocabulary, then retry the job"
        )
    return value

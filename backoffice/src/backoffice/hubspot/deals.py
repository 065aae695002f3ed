"""Payments, day passes and other business as deals: one deal per reference, however often it is sent."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from backoffice.hubspot.contacts import Name, Word
from backoffice.hubspot.vocabulary import DEAL_KEY, provider_value
from rowlock import Call
from rowlock.sync.hubspot import CONTACTS, DEALS, Currency, Email, HubSpot, MinorUnits, decimal_amount

PIPELINE = "default"  # the first pipeline of every account, and two of its stages
PAID_STAGE = "closedwon"
OPEN_STAGE = "appointmentscheduled"

Reference = Annotated[str, Field(pattern=r"^[\w.:-]{1,100}$")]
StageId = Annotated[str, Field(pattern=r"^[\w-]{1,100}$")]


async def sync_payment(
    call: Call,
    email: Email,
    paymentIntentId: Reference,
    amount: MinorUnits,
    currency: Currency = "USD",
    description: Name | None = None,
    paidAt: AwareDatetime | None = None,
    provider: Word = "stripe",
) -> dict[str, Any]:
    """Write a payment as a won deal of the member's contact."""
    return await _paid(call, email, paymentIntentId, description or "Payment", amount, currency, paidAt, provider)


async def sync_day_pass(
    call: Call,
    email: Email,
    paymentIntentId: Reference,
    amount: MinorUnits,
    currency: Currency = "USD",
    description: Name | None = None,
    paidAt: AwareDatetime | None = None,
    provider: Word = "stripe",
) -> dict[str, Any]:
    """Write a day pass as a won deal of the guest's contact."""
    return await _paid(call, email, paymentIntentId, description or "Day pass", amount, currency, paidAt, provider)


async def create_deal(
    call: Call,
    externalId: Reference,
    name: Name,
    email: Email | None = None,
    amount: MinorUnits | None = None,
    currency: Currency = "USD",
    stage: StageId = OPEN_STAGE,
    pipeline: StageId = PIPELINE,
) -> dict[str, Any]:
    """Write any other business as a deal, in any stage of any pipeline."""
    properties = {"dealname": name, "pipeline": pipeline, "dealstage": stage}
    if amount is not None:
        properties |= _money(amount, currency)
    return await _put(call, email, externalId, properties)


async def _paid(
    call: Call,
    email: str,
    reference: str,
    title: str,
    amount: int,
    currency: str,
    paid_at: AwareDatetime | None,
    provider: str,
) -> dict[str, Any]:
    properties = {
        "dealname": f"{title} ({email})",
        "pipeline": PIPELINE,
        "dealstage": PAID_STAGE,
        "billing_provider": provider_value(provider),
        **_money(amount, currency),
    }
    if paid_at is not None:
        moment = paid_at.astimezone(UTC)
        properties["closedate"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return await _put(call, email, reference, properties)


def _money(amount: int, currency: str) -> dict[str, str]:
    return {"amount": decimal_amount(amount, currency), "billing_currency": currency}


async def _put(call: Call, email: str | None, reference: str, properties: dict[str, str]) -> dict[str, Any]:
    """Write the contact first, so that no deal lacks its contact for long. Each step is idempotent."""
    crm = HubSpot(call)
    contact = None
    if email is not None:
        await call.hold(email)  # writes to a missing contact create it, so they must not run concurrently
        contact = await crm.find_or_create_contact(email)
    fresh = call.fresh(properties)
    if fresh:
        deal = await crm.upsert(DEALS, DEAL_KEY, reference, fresh)
    elif (found := await crm.find(DEALS, DEAL_KEY, reference)) is not None:
        deal = found
    else:
        return {"skipped": True, "reason": "a newer job has written all of this, and somebody has deleted the deal"}
    if contact is not None:
        await crm.associate(DEALS, deal.id, CONTACTS, contact.id)
    return {"dealId": deal.id, "created": deal.created, "contactId": None if contact is None else contact.id}

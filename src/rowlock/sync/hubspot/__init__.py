"""The HubSpot connector: CRM methods for operations, rate limits, and the interpretation of HubSpot's answers."""

from rowlock.sync.hubspot.amounts import Currency, MinorUnits, decimal_amount
from rowlock.sync.hubspot.answers import is_refused, limited, spent
from rowlock.sync.hubspot.batch import BATCH_MAX, Entry
from rowlock.sync.hubspot.crm import SEARCH_GROUP, HubSpot
from rowlock.sync.hubspot.emails import Email, normal_email
from rowlock.sync.hubspot.properties import Ensured, Property
from rowlock.sync.hubspot.records import COMPANIES, CONTACTS, DEALS, Record, Upsert

__all__ = [
    "BATCH_MAX",
    "COMPANIES",
    "CONTACTS",
    "DEALS",
    "SEARCH_GROUP",
    "Currency",
    "Email",
    "Ensured",
    "Entry",
    "HubSpot",
    "MinorUnits",
    "Property",
    "Record",
    "Upsert",
    "decimal_amount",
    "is_refused",
    "limited",
    "normal_email",
    "spent",
]

"""Operations for the sync under attack, in enqueue order, and their expected result."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from unittest import mock

from faults.databases import Database, Record
from faults.processes import QUICK, Fleet, Tree
from rowlock.settings import load
from rowlock.storage.records import JobFilter, Receipt, Retried, Status
from sync.standin import StandIn

APP = "faults.sync_app:app"
CALLS, SECONDS, SEARCHES = 40, 0.5, 4  # calls in any period of SECONDS, and searches in any second
TIERS = ("social", "core", "premium", "corporate", "founding_member", "vip")
STATUSES = ("pending", "trialing", "active", "past_due", "paused", "cancelled")
_ITS_OWN = ("hubspot.ensure", "hubspot.cycle")  # jobs that the integration enqueues itself
SHARES = {
    "update_contact": 45,
    "create_contact": 15,
    "sync_tier": 10,
    "sync_payment": 12,
    "sync_day_pass": 8,
    "sync_company": 8,
    "bad_update": 0.5,
}


@dataclass
class Workload:
    """Generates operations, and the state that a single patient caller would leave."""

    rng: random.Random
    people: int
    contacts: dict[str, dict[str, str]] = field(default_factory=dict)
    deals: dict[str, dict[str, str]] = field(default_factory=dict)
    companies: dict[str, dict[str, str]] = field(default_factory=dict)
    associations: set[tuple[str, str, str]] = field(default_factory=set)  # (kind, key, e-mail)
    asked: int = 0
    bad: int = 0
    _tiers: dict[str, list[str]] = field(default_factory=dict)

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next operation and its payload."""
        self.asked += 1
        (name,) = self.rng.choices(list(SHARES), list(SHARES.values()))
        made: tuple[str, dict[str, Any]] = getattr(self, f"_{name}")(f"m{self.rng.randrange(self.people)}@x.org")
        return made

    def _contact(self, email: str) -> dict[str, str]:
        return self.contacts.setdefault(email, {"email": email})

    def _spelled(self, email: str) -> str:
        return self.rng.choice([email, email.upper(), f" {email}"])

    def _create_contact(self, email: str) -> tuple[str, dict[str, Any]]:
        names = {"firstname": f"First {email}", "lastname": "Last"}
        self._contact(email).update(names)
        payload = {"email": self._spelled(email), "firstName": names["firstname"], "lastName": names["lastname"]}
        return "create_contact", payload

    def _update_contact(self, email: str) -> tuple[str, dict[str, Any]]:
        chosen = self.rng.sample(["phone", "city", "jobtitle"], self.rng.randint(1, 2))
        properties = {name: f"{name} {self.asked}" for name in chosen}
        self._contact(email).update(properties)
        payload: dict[str, Any] = {"email": self._spelled(email), "properties": properties}
        if self.rng.random() < 0.4:
            payload["status"] = self.rng.choice(STATUSES)
            self._contact(email)["membership_status"] = payload["status"]
        return "update_contact", payload

    def _bad_update(self, email: str) -> tuple[str, dict[str, Any]]:
        """Return an update whose value the service rejects: only this job fails, and no contact is created."""
        self.bad += 1
        return "update_contact", {"email": email, "properties": {"lifecyclestage": f"nowhere {self.asked}"}}

    def _sync_tier(self, email: str) -> tuple[str, dict[str, Any]]:
        known = self._tiers.setdefault(email, self.rng.sample(TIERS, len(TIERS)))
        if len(known) < 2:
            return self._update_contact(email)
        old, new = known.pop(0), known[0]
        self._contact(email)["membership_tier"] = new
        return "sync_tier", {"email": self._spelled(email), "oldTier": old, "newTier": new}

    def _paid(self, email: str, title: str) -> dict[str, Any]:
        reference = f"pi_{self.asked}"
        self._contact(email)
        amount = self.rng.randrange(100, 100_000)
        self.deals[reference] = {
            "billing_reference": reference,
            "amount": f"{amount // 100}.{amount % 100:02d}",
            "dealname": f"{title} ({email})",
        }
        self.associations.add(("deals", reference, email))
        return {"email": self._spelled(email), "paymentIntentId": reference, "amount": amount, "currency": "eur"}

    def _sync_payment(self, email: str) -> tuple[str, dict[str, Any]]:
        return "sync_payment", self._paid(email, "Payment")

    def _sync_day_pass(self, email: str) -> tuple[str, dict[str, Any]]:
        return "sync_day_pass", self._paid(email, "Day pass")

    def _sync_company(self, email: str) -> tuple[str, dict[str, Any]]:
        key = f"c_{self.rng.randrange(max(3, self.people // 4))}"
        name = f"Company {self.asked}"
        self.companies[key] = {"billing_company_id": key, "name": name}
        payload = {"externalId": key, "name": name}
        if self.rng.random() < 0.5:
            self._contact(email)
            self.associations.add(("companies", key, email))
            payload["email"] = email
        return "sync_company", payload

    # -- judging -----------------------------------------------------------------------------------

    def differences(self, state: dict[str, Any]) -> list[str]:
        """Return the differences between the service's state and the expected one."""
        objects = state["objects"]
        found = []
        contacts = {each["properties"]["email"]: each["properties"] for each in objects["contacts"]}
        deals = {
            each["properties"].get("billing_reference", each["id"]): each["properties"] for each in objects["deals"]
        }
        companies = {
            each["properties"].get("billing_company_id", each["id"]): each["properties"]
            for each in objects["companies"]
        }
        for kind, wanted, has in (
            ("contacts", self.contacts, contacts),
            ("deals", self.deals, deals),
            ("companies", self.companies, companies),
        ):
            if len(objects[kind]) != len(has):
                found.append(f"{kind}: {len(objects[kind])} objects with {len(has)} keys")
            found += [f"{kind}: {key} is missing" for key in sorted(wanted.keys() - has.keys())]
            found += [f"{kind}: nobody asked for {key}" for key in sorted(has.keys() - wanted.keys())]
            for key in wanted.keys() & has.keys():
                wrong = {
                    name: (has[key].get(name), value)
                    for name, value in wanted[key].items()
                    if has[key].get(name) != value
                }
                if wrong:
                    found.append(f"{kind}: {key} has, and should have: {wrong}")
        return found + self._wrong_associations(state)

    def _wrong_associations(self, state: dict[str, Any]) -> list[str]:
        emails = {each["id"]: each["properties"]["email"] for each in state["objects"]["contacts"]}
        keys = {
            ("deals", each["id"]): each["properties"].get("billing_reference") for each in state["objects"]["deals"]
        } | {
            ("companies", each["id"]): each["properties"].get("billing_company_id")
            for each in state["objects"]["companies"]
        }
        has = {
            (kind, keys[kind, own_id], emails[to_id])
            for kind, own_id, other, to_id, _ in state["associations"]
            if other == "contacts" and kind in ("deals", "companies")
        }
        return [f"association missing: {each}" for each in sorted(self.associations - has)] + [
            f"association that nobody asked for: {each}" for each in sorted(has - self.associations)
        ]


def prepare(standin: StandIn) -> None:
    """Create the properties that the operations write, as the start-up job does."""
    from backoffice.hubspot.vocabulary import PROPERTIES

    fields = {"string": "text", "enumeration": "select", "date": "date"}
    groups = {"contacts": "contactinformation", "companies": "companyinformation", "deals": "dealinformation"}
    for kind, wanted in PROPERTIES.items():
        for each in wanted:
            told: dict[str, Any] = {"name": each.name, "label": each.label, "type": each.type}
            told |= {"fieldType": fields[each.type], "groupName": groups[kind], "hasUniqueValue": each.unique}
            if each.options:
                told["options"] = [{"label": label, "value": value} for value, label in each.options.items()]
            standin.properties(kind, told)


def judge(standin: StandIn) -> dict[str, Any]:
    """Assert the invariants: limits, order, one object per key, well-formed requests. Returns the judgement."""
    found = standin.judgement()
    assert [(window["name"], window["most"]) for window in found["windows"] if window["most"] > window["count"]] == []
    assert sum(window["overruns"] for window in found["windows"]) == 0
    assert found["complaints"] == []
    assert {kind: twice for kind, twice in found["duplicates"].items() if twice} == {}
    assert found["overlaps"] == []
    return found


class Syncing:
    """Enqueues from the test, with the settings of its workers."""

    def __init__(self, database: Database, standin: StandIn, **environment: str) -> None:
        self.database = database
        self.standin = standin
        self.environment: Mapping[str, str] = {
            "ROWLOCK_HUBSPOT_TOKEN": standin.token,
            "ROWLOCK_HUBSPOT_URL": standin.url,
            "ROWLOCK_SYNC_TIMEOUT_SECONDS": "1.0",
            "ROWLOCK_DEATHS_MAX": "100",  # the attack kills far more often than real failures
            "FAULTS_LIMIT": f"{CALLS}/{SECONDS}/{SEARCHES}",
            **environment,
        }
        from faults.sync_app import make_app

        with mock.patch.dict(os.environ, {**QUICK, **self.environment}):
            self.app = make_app(load(database_url=database.url))
        self.hub = self.app.integrations["hubspot"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.app.blocking.close()

    def worker(self, fleet: Fleet, processes: int = 1, **environment: str) -> Tree:
        """Start a tree of workers and wait until they are ready."""
        told = {**self.environment, **environment}
        return fleet.worker(self.database, processes=processes, concurrency=2, app=APP, **told)

    def put(self, operation: str, payload: dict[str, Any], **options: Any) -> str:
        """Enqueue an operation and return the job's id."""
        return self.send(operation, payload, **options).job_id

    def send(self, operation: str, payload: dict[str, Any], **options: Any) -> Receipt:
        async def send() -> Receipt:
            return await self.hub.enqueue(operation, payload, **options)

        return self.app.blocking.run(send())

    def put_all(self, workload: Workload, number: int) -> list[str]:
        async def put() -> list[str]:
            return [(await self.hub.enqueue(*workload.next())).job_id for _ in range(number)]

        return self.app.blocking.run(put())

    def run_now(self, job_id: str) -> bool:
        """Make a delayed job available, as an operator does."""

        async def run_now() -> bool:
            return await self.app.store.run_now(job_id)

        return self.app.blocking.run(run_now())

    def retry_dead(self) -> Retried:
        """Retry all dead letters, as an operator does after fixing the cause."""

        async def retry() -> Retried:
            return await self.app.store.retry(JobFilter(status=Status.FAILED, type_prefix="hubspot."), 100_000)

        return self.app.blocking.run(retry())

    def jobs(self) -> dict[str, Record]:
        found = self.database.records()
        return {id: job for id, job in found.items() if job.type.startswith("hubspot.") and job.type not in _ITS_OWN}

    def succeeded(self) -> bool:
        """Whether every job has succeeded."""
        return self.over() and all(job.status == "succeeded" for job in self.jobs().values())

    def over(self) -> bool:
        """Whether every job has succeeded or failed."""
        return all(job.status in ("succeeded", "failed", "cancelled") for job in self.jobs().values())

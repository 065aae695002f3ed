"""A site with an integration, and a small service that it calls."""

from __future__ import annotations

from typing import Any

from rowlock import Call, Calls, Integration, RateLimit, Rowlock, Update
from sync.service import Asked, Reply
from web.site import Site

SECRET = "pat-canary-0123456789"
SCOPES_URL = "https://crm.test/scopes"
LIMITS = [RateLimit(1_000, per_seconds=1), RateLimit(500, per_seconds=1, group="search")]
CREATE = "/api/v1/sync/crm/create_contact"
UPDATE = "/api/v1/sync/crm/update_contact"


def declare_crm(app: Rowlock, name: str = "crm", **options: Any) -> Integration:
    """An integration as others write it; nobody is at its other end unless `base_url` says so."""
    given = {"base_url": "http://127.0.0.1:9", "token": SECRET, "limits": LIMITS, "scopes_url": SCOPES_URL}
    hub = app.integration(name, **given | {"operations_off": {"create_deal"}, "timeout_seconds": 5.0} | options)

    @hub.operation("create_contact", key="member_creation_{email}", about="{email}")
    async def create_contact(call: Call, email: str, firstName: str | None = None, token: str = "") -> dict[str, Any]:
        answer = await call.post("/contacts", json={"email": email, "firstName": firstName})
        return {"id": answer.json["id"]}

    @hub.operation("update_contact", about="{email}", batch=10)
    async def update_contact(calls: Calls, updates: list[Update]) -> list[Any]:
        await calls.post("/contacts/batch", json=[update.subject for update in updates])
        return [{"done": True} for _ in updates]

    @hub.operation("create_deal", priority=7)
    async def create_deal(call: Call, name: str) -> None:
        raise AssertionError("it is off")

    return hub


def refuses(asked: Asked) -> Reply:
    """The other side, to whom our scopes are not enough."""
    return Reply(403, {"category": "MISSING_SCOPES", "message": "this app lacks contacts.write", "token": SECRET})


def agrees(asked: Asked) -> Reply:
    return Reply(201, {"id": "7"})


async def sent(site: Site, operation: str = "create_contact", token: str = "operator", **given: Any) -> dict[str, Any]:
    """The job of an operation that was taken."""
    answer = await site.post(f"/api/v1/sync/crm/{operation}", given, token)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())

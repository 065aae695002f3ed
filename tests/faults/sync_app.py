"""The application whose sync is under attack: the real operations, with delays short enough for a test.

FAULTS_LIMIT is "calls/seconds/searches", the limits of the stand-in.
With FAULTS_MUTANT set, one guard is removed, see `mutants`.
"""

from __future__ import annotations

import os
from typing import Any

from backoffice import hubspot
from faults import mutation
from rowlock import Backoff, Call, RateLimit, Rowlock
from rowlock.settings import Settings
from rowlock.sync.hubspot import CONTACTS, HubSpot

LIMIT_VARIABLE = "FAULTS_LIMIT"
RETRY = Backoff(max_attempts=6, base_seconds=0.1, factor=2.0, max_seconds=1.0)
VISIBILITY_SECONDS = 2.0


def make_app(settings: Settings | None = None) -> Rowlock:
    made = Rowlock(settings=settings)
    calls, seconds, searches = os.environ.get(LIMIT_VARIABLE, "100/10/4").split("/")
    limits = [RateLimit(int(calls), per_seconds=float(seconds)), RateLimit(250_000, per_seconds=86_400)]
    limits.append(RateLimit(int(searches), per_seconds=1, group="search"))
    hub = hubspot.declare(
        made,
        limits=limits,
        retry=RETRY,
        rest_seconds=(0.2, 1.0),
        visibility_seconds=VISIBILITY_SECONDS,
        rescue_delay_seconds=0.0,
        poll_seconds=0.2,
    )
    hub.operation("set_city", key="set_city_{email}", about="{email}")(set_city)
    return made


async def set_city(call: Call, email: str, city: str) -> Any:
    """Write the city; the key of this operation does not contain the value."""
    if fresh := call.fresh({"city": city}):
        return (await HubSpot(call).upsert(CONTACTS, "email", email, fresh)).id
    return None


mutation.apply()
app = make_app()

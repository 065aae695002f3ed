"""The application whose workers are measured: the back office's operations, with a low limit."""

from __future__ import annotations

from backoffice import hubspot
from rowlock import RateLimit, Rowlock
from rowlock.settings import Settings

CALLS, SECONDS = 20, 2.0


def application(settings: Settings | None = None) -> Rowlock:
    """Declare HubSpot with a limit of few calls in a short window, so that a run of seconds has many windows."""
    made = Rowlock(settings=settings)
    limits = [
        RateLimit(CALLS, per_seconds=SECONDS),
        RateLimit(250_000, per_seconds=86_400),
        RateLimit(4, group="search"),
    ]
    hubspot.declare(made, limits=limits)
    return made


app = application()

"""The application whose sync is under attack: the real operations, with times that do not let a test wait.

FAULTS_LIMIT is "calls/seconds/searches", as the stand-in has them.
With FAULTS_MUTANT set, one guard is taken out, see `mutants`.
"""

from __future__ import annotations

import os

from backoffice import hubspot
from faults import mutants
from rowlock import Allow, Backoff, Rowlock
from rowlock.settings import Settings

LIMIT_VARIABLE = "FAULTS_LIMIT"
RETRY = Backoff(max_attempts=6, base_seconds=0.1, factor=2.0, max_seconds=1.0)
VISIBILITY_SECONDS = 2.0


def make_app(settings: Settings | None = None) -> Rowlock:
    made = Rowlock(settings=settings)
    calls, seconds, searches = os.environ.get(LIMIT_VARIABLE, "100/10/4").split("/")
    limits = [Allow(int(calls), per_seconds=float(seconds)), Allow(250_000, per_seconds=86_400)]
    limits.append(Allow(int(searches), per_seconds=1, group="search"))
    hubspot.declare(
        made,
        limits=limits,
        retry=RETRY,
        rest_seconds=(0.2, 1.0),
        visibility_seconds=VISIBILITY_SECONDS,
        rescue_delay_seconds=0.0,
        poll_seconds=0.2,
    )
    return made


mutants.apply()
app = make_app()

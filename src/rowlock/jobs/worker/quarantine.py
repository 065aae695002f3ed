"""Quarantine candidates: jobs that one more process death would quarantine. Each runs alone in its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ALONE_SECONDS = 3.0  # after which a running candidate no longer keeps the others waiting
AGAIN_SECONDS = 10.0  # delay of a released candidate, which could not run alone


@dataclass(slots=True)
class QuarantineCandidates:
    """The state of quarantine candidates that the consumers of a process share."""

    busy: Callable[[], bool]  # whether anything runs in this process
    on_end: Callable[[], None]
    alone: bool = False  # a candidate runs
    waiting: int = 0  # number of candidates, the running one included

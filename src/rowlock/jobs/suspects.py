"""Jobs that one more death of their process would condemn: each of them runs alone in its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ALONE_SECONDS = 3.0  # a suspect that has lived so long does not keep the others waiting any longer
AGAIN_SECONDS = 10.0  # before a job that must run alone, and could not, is tried again


@dataclass(slots=True)
class Suspects:
    """What the lanes of a process share about jobs that one more death would condemn: each of them runs alone."""

    busy: Callable[[], bool]  # whether anything runs in this process
    on_end: Callable[[], None]
    alone: bool = False  # one runs
    waiting: int = 0  # how many there are, the running one included

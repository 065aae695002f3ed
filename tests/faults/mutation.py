"""Remove the guard named by FAULTS_MUTANT, if any.

`mutants` imports every store: without that import, a process without a mutant starts in half the time.
"""

from __future__ import annotations

import os

from rowlock.clock import Clock

VARIABLE = "FAULTS_MUTANT"


def apply() -> None:
    if os.environ.get(VARIABLE):
        from faults import mutants

        mutants.apply()


def clock() -> Clock | None:
    """Return the worker's own clock under the mutant `local_clock`; else None, which means the store's clock."""
    if os.environ.get(VARIABLE):
        from faults import mutants

        return mutants.clock()
    return None

"""The application object, its defaults, priorities, and the payload types that jobs share."""

from __future__ import annotations

import os
from datetime import date
from enum import IntEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from rowlock import Rowlock

QUEUE = "ai-cfo-jobs"

# Identical jobs from HTTP and the command line are refused for 24 hours. ROWLOCK_DOCUMENT_VIEWS creates views for psql.
_DEFAULTS = {
    "queue": ("WORKER_QUEUE_NAME", QUEUE),
    "document_views": ("ROWLOCK_DOCUMENT_VIEWS", True),
    "unique": ("QUEUE_UNIQUE", "window:86400"),
    "unique_for": ("QUEUE_UNIQUE_FOR", "requests"),
}

app = Rowlock()
app.settings = app.settings.model_copy(
    update={field: value for field, (name, value) in _DEFAULTS.items() if name not in os.environ}
)


class Criticality(IntEnum):
    """Priorities by importance: lower numbers run first."""

    CRITICAL = 10
    MEDIUM = 50
    LOW = 100
    DIAGNOSTIC = 150


def _real(day: str) -> str:
    date.fromisoformat(day)
    return day


# No colon: it separates the company from the rest of a lock's scope.
CompanyId = Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]
Month = Annotated[
    str, Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$"), AfterValidator(lambda month: _real(f"{month}-01")[:7])
]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_real)]
DataVersion = Annotated[str, Field(min_length=1, max_length=100)]

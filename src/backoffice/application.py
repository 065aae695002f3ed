"""The application that the jobs are registered with, and what their payloads have in common."""

from __future__ import annotations

import os
from datetime import date
from enum import IntEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from rowlock import Rowlock

QUEUE = "ai-cfo-jobs"

app = Rowlock()
if "WORKER_QUEUE_NAME" not in os.environ:
    app.settings = app.settings.model_copy(update={"queue": QUEUE})


class Criticality(IntEnum):
    """How much depends on a job, as its priority: what is critical runs first."""

    CRITICAL = 10
    MEDIUM = 50
    LOW = 100
    DIAGNOSTIC = 150


def _real(day: str) -> str:
    date.fromisoformat(day)
    return day


# No colon: it separates the company from the rest of a guard's scope.
CompanyId = Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]
Month = Annotated[
    str, Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$"), AfterValidator(lambda month: _real(f"{month}-01")[:7])
]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_real)]
DataVersion = Annotated[str, Field(min_length=1, max_length=100)]

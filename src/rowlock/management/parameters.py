"""The parameters of endpoints that several of them share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from rowlock.errors import ImportNotFound, IntegrationNotFound, JobNotFound, OperationNotFound
from rowlock.ids import is_uuid
from rowlock.jobs.registry import checked_name
from rowlock.management.endpoint import Parameter
from rowlock.management.schemas.base import (
    EXAMPLE_ID,
    Cursor,
    ImportStatusField,
    Limit,
    Moment,
    Name,
    Reason,
    StatusField,
)
from rowlock.storage.imports import ImportStatus
from rowlock.storage.overview import HISTORY_MINUTES_MAX
from rowlock.storage.records import Status


def no_job(job_id: str) -> JobNotFound:
    return JobNotFound(f"no job has the id {job_id}; retention may have removed it")


def no_failure(failure_id: str) -> JobNotFound:
    return JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")


def no_import(import_id: str) -> ImportNotFound:
    return ImportNotFound(f"no import has the id {import_id}; retention may have removed it")


# -- in the path: a malformed one could lead to another path ---------------------------------------


def _job(job_id: str) -> str:
    if not is_uuid(job_id):
        raise no_job(job_id)
    return job_id


def _failure(failure_id: str) -> str:
    if not is_uuid(failure_id):
        raise no_failure(failure_id)
    return failure_id


def checked_import(import_id: str) -> str:
    if not is_uuid(import_id):
        raise no_import(import_id)
    return import_id


def _queue(name: str) -> str:
    return checked_name(name, "queue")


def _schedule(name: str) -> str:
    return checked_name(name, "schedule")


def checked_integration(name: str) -> str:
    if "/" in checked_name(name, "integration"):
        raise IntegrationNotFound(f"no integration is called {name!r}")
    return name


def checked_operation(name: str) -> str:
    if "/" in checked_name(name, "operation"):
        raise OperationNotFound(f"no operation is called {name!r}")
    return name


_Id = Annotated[str, Field(min_length=1, max_length=64)]
AnyId = Annotated[str, Field(max_length=64)]
JobIdParameter = Annotated[str, Parameter(kind=_Id, example=EXAMPLE_ID, check=_job)]
ImportIdParameter = Annotated[str, Parameter(kind=_Id, example=EXAMPLE_ID, check=checked_import)]
FailureIdParameter = Annotated[str, Parameter(kind=AnyId, check=_failure)]
QueueParameter = Annotated[str, Parameter(kind=Name, example="default", check=_queue)]
ScheduleParameter = Annotated[str, Parameter(kind=Name, example="nightly", check=_schedule)]
IntegrationParameter = Annotated[
    str, Parameter("The name of an integration.", Name, example="hubspot", check=checked_integration)
]

OperationParameter = Annotated[
    str, Parameter("The name of one of its operations.", Name, example="create_contact", check=checked_operation)
]

# -- filters ---------------------------------------------------------------------------------------


def _isoformat(moment: datetime) -> str:
    return moment.isoformat()


StatusFilter = Annotated[
    Status | str | None, Parameter("Only jobs with this status.", StatusField | None, check=Status)
]
TypeFilter = Annotated[
    str | None, Parameter("Only jobs of this type; `name.*`: all types with this prefix.", Name | None)
]
QueueFilter = Annotated[str | None, Parameter("Only jobs of this queue.", Name | None)]
CompanyFilter = Annotated[str | None, Parameter("Only jobs of this company.", Name | None)]
ReasonFilter = Annotated[
    str | None,
    Parameter("Only jobs that failed for this reason, as given by `dead-letter/groups`.", Reason | None),
]
SinceFilter = Annotated[
    datetime | None, Parameter("Only jobs enqueued at or after this time.", Moment | None, check=_isoformat)
]
UntilFilter = Annotated[
    datetime | None, Parameter("Only jobs enqueued before this time.", Moment | None, check=_isoformat)
]
ImportStatusFilter = Annotated[
    ImportStatus | str | None,
    Parameter("Only imports with this status.", ImportStatusField | None, check=ImportStatus),
]
MinutesParameter = Annotated[
    int, Parameter("Number of minutes, at most a day.", Annotated[int, Field(ge=1, le=HISTORY_MINUTES_MAX)])
]
LimitParameter = Annotated[int, Parameter("Maximum number of jobs.", Limit)]
CursorParameter = Annotated[str | None, Parameter("The nextCursor of an earlier page.", Cursor | None)]

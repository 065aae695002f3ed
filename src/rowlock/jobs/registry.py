"""The registered job types of an application, by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock.errors import BadPayload, SettingsError, UnknownJobType
from rowlock.jobs.locks import LockRule
from rowlock.jobs.policy import Backoff, Unique
from rowlock.jobs.signature import Arguments, compile_arguments, fields_of
from rowlock.settings import NAME_LENGTH_MAX, PRIORITY_RANGE
from rowlock.storage.records import Limit


@dataclass(frozen=True, slots=True)
class JobType:
    """A handler and everything declared about it."""

    name: str
    handler: Callable[..., Any]
    is_async: bool
    arguments: Arguments | None  # None: the handler takes the job alone
    queue: str
    priority: int
    retry: Backoff
    visibility_ms: int
    unique: Unique | None = None
    limit: str | None = None
    limit_by: str | None = None
    deadline_seconds: float | None = None
    batch: int | None = None
    permanent: tuple[type[BaseException], ...] = ()
    lock: LockRule | None = None

    def results(self, returned: Any, jobs: int) -> list[Any]:
        """Return the result of a batch handler as one entry per job; raises BadPayload if it has another form."""
        if returned is None:
            return [None] * jobs
        if not isinstance(returned, list) or len(returned) != jobs:
            raise BadPayload(f"{self.name}: a batch handler returns None or a list with one entry per job")
        return returned


class Registry:
    """The job types of one application and their aliases."""

    def __init__(self) -> None:
        self._types: dict[str, JobType] = {}
        self._present_names: dict[str, str] = {}  # by alias
        self._oldest_names: dict[str, str] = {}  # by present name, for types with aliases

    def add(self, job_type: JobType) -> None:
        if job_type.name in self._types:
            raise SettingsError(f"job {job_type.name!r} is registered twice; names must be different")
        self._types[job_type.name] = job_type

    def alias(self, name: str, existing: str) -> None:
        """Register the handler of an existing type under an additional, older name."""
        self.add(replace(self.require(existing), name=checked_name(name, "job type")))
        present = self._present_names[name] = self._present_names.get(existing, existing)
        if existing == self.oldest_name(existing):
            self._oldest_names[present] = name

    def oldest_name(self, name: str) -> str:
        """Return the first name that this type had: the same for the type and all of its aliases."""
        present = self._present_names.get(name, name)
        return self._oldest_names.get(present, present)

    def get(self, name: str) -> JobType | None:
        return self._types.get(name)

    def require(self, name: str) -> JobType:
        """Return the type of this name; raises UnknownJobType, which suggests the nearest names."""
        found = self._types.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._types, n=3)
            known = (
                f"did you mean {' or '.join(map(repr, near))}?"
                if near
                else f"known: {', '.join(sorted(self._types)) or 'none'}"
            )
            raise UnknownJobType(f"no handler is registered for job type {name!r}; {known}")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)


def checked_name(name: str, what: str) -> str:
    """Return a name of a type, queue, limit or key; raises SettingsError if it is empty, too long or not printable."""
    if not isinstance(name, str) or not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise SettingsError(f"{what} {name!r}: must be 1 to {NAME_LENGTH_MAX} printable characters")
    return name


def checked_limit(name: str, concurrency: int | None, rate: int | None, per_seconds: float) -> Limit:
    """Return a limit that jobs may share; raises SettingsError if it limits nothing or cannot be kept."""
    checked_name(name, "limit")
    if ":" in name:
        raise SettingsError(f"limit {name!r}: the name may not contain a colon, which separates it from the part")
    if concurrency is None and rate is None:
        raise SettingsError(f"limit {name!r}: give concurrency=, rate=, or both")
    if (concurrency is not None and concurrency < 1) or (rate is not None and rate < 1) or per_seconds <= 0:
        raise SettingsError(f"limit {name!r}: concurrency and rate must be at least 1, per_seconds more than 0")
    return Limit(name, concurrency, rate, per_seconds)


def make_type(
    name: str, handler: Callable[..., Any], names: Mapping[str, Any], *, batch: int | None, **declared: Any
) -> JobType:
    """Check a declaration and compile the handler's signature; raises SettingsError."""
    checked_name(name, "job type")
    if batch is not None and not 1 <= batch <= 10_000:
        raise SettingsError(f"job {name!r}: batch must be 1 to 10000, not {batch}")
    if declared.get("limit_by") is not None and declared.get("limit") is None:
        raise SettingsError(f"job {name!r}: limit_by= requires limit=")
    low, high = PRIORITY_RANGE
    if not low <= declared["priority"] <= high:
        raise SettingsError(f"job {name!r}: priority must be {low} to {high}, not {declared['priority']}")
    if not 1 <= declared["visibility_ms"] < 2**31:
        raise SettingsError(f"job {name!r}: the visibility timeout must be 1 ms to 24 days")
    if declared["deadline_seconds"] is not None and declared["deadline_seconds"] <= 0:
        raise SettingsError(f"job {name!r}: deadline_seconds must be more than 0, not {declared['deadline_seconds']}")
    is_async = inspect.iscoroutinefunction(handler)
    arguments = compile_arguments(name, handler, names)
    if batch is not None and arguments is not None:
        raise SettingsError(f"job {name!r}: a batch handler takes the list of jobs and nothing else")
    if (lock := declared.get("lock")) is not None:
        if batch is not None:
            raise SettingsError(f"job {name!r}: a batch handler cannot be guarded: each of its jobs has its own lock")
        lock.check(name, fields_of(handler))
    return JobType(name, handler, is_async, arguments, batch=batch, **declared)

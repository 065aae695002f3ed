"""The job types that an application knows, by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.errors import SettingsError, UnknownJobType
from rowlock.jobs.guard import GuardRule
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
    guard: GuardRule | None = None


class Registry:
    """Adding a type is a function and a decorator."""

    def __init__(self) -> None:
        self._types: dict[str, JobType] = {}

    def add(self, job_type: JobType) -> None:
        if job_type.name in self._types:
            raise SettingsError(f"job {job_type.name!r} is registered twice; names must be different")
        self._types[job_type.name] = job_type

    def get(self, name: str) -> JobType | None:
        return self._types.get(name)

    def require(self, name: str) -> JobType:
        """The type of this name; the error suggests the nearest ones."""
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
    """A name of a type, queue, limit or key; raises where it is empty, too long or has control characters."""
    if not isinstance(name, str) or not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise SettingsError(f"{what} {name!r}: must be 1 to {NAME_LENGTH_MAX} printable characters")
    return name


def checked_limit(name: str, concurrency: int | None, rate: int | None, per_seconds: float) -> Limit:
    """A limit that jobs may share; raises where it limits nothing or cannot be kept."""
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
    """Check a declaration and compile its signature."""
    checked_name(name, "job type")
    if batch is not None and not 1 <= batch <= 10_000:
        raise SettingsError(f"job {name!r}: batch must be 1 to 10000, not {batch}")
    if declared.get("limit_by") is not None and declared.get("limit") is None:
        raise SettingsError(f"job {name!r}: limit_by= says how to count and needs limit= to say what")
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
    if (guard := declared.get("guard")) is not None:
        if batch is not None:
            raise SettingsError(f"job {name!r}: a batch handler cannot be guarded: each of its jobs has its own lock")
        guard.check(name, fields_of(handler))
    return JobType(name, handler, is_async, arguments, batch=batch, **declared)

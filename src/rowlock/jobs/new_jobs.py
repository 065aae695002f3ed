"""New jobs: from a type, a payload and options to a job that a store can take. No store is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, datetime
from itertools import islice
from operator import length_hint
from typing import Any, Literal

from rowlock.errors import DELAY_SECONDS_MAX, BadPayload
from rowlock.gc_pause import no_garbage
from rowlock.ids import uuid7, uuid7s
from rowlock.jobs.payload import encode, fingerprint
from rowlock.jobs.policy import Unique
from rowlock.jobs.registry import JobType, Registry, checked_name
from rowlock.observe import trace
from rowlock.settings import NAME_LENGTH_MAX, PRIORITY_RANGE, Settings
from rowlock.storage.records import JobId, NewJob, OnConflict, UniqueKey

Given = tuple[str, dict[str, Any]]  # type and payload
Caster = Callable[[dict[str, Any], JobId], NewJob]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one enqueue call; None stands for the default of the type, then of the settings."""

    queue: str | None = None
    priority: int | None = None
    delay_seconds: float = 0.0
    at: datetime | None = None
    max_attempts: int | None = None
    company_id: str | None = None
    unique: Unique | None = None
    limit_key: str | None = None
    origin: Literal["code", "request", "schedule"] = "code"  # request: the HTTP API or the command line

    def check(self, what: str) -> None:
        """Raise BadPayload for a number or time that no store accepts, SettingsError for an invalid name."""
        low, high = PRIORITY_RANGE
        if self.priority is not None and not low <= self.priority <= high:
            raise BadPayload(f"{what}: priority must be {low} to {high}, not {self.priority}")
        if not 0.0 <= self.delay_seconds <= DELAY_SECONDS_MAX:
            raise BadPayload(f"{what}: delay_seconds must be 0 to {DELAY_SECONDS_MAX:.0f}, not {self.delay_seconds}")
        if self.at is not None and self.at.tzinfo is None:
            raise BadPayload(f"{what}: `at` needs a time zone, for example datetime.now(UTC) + timedelta(hours=1)")
        if self.at is not None and not MINYEAR < self.at.year < MAXYEAR:
            raise BadPayload(f"{what}: `at` must be in the years {MINYEAR + 1} to {MAXYEAR - 1}, not {self.at.year}")
        if self.max_attempts is not None and not 1 <= self.max_attempts <= 1_000:
            raise BadPayload(f"{what}: max_attempts must be 1 to 1000, not {self.max_attempts}")
        for name in ("queue", "company_id", "limit_key"):
            if (value := getattr(self, name)) is not None:
                checked_name(value, name)
        if self.unique is not None and isinstance(self.unique.key, str):
            checked_name(self.unique.key, "unique key")


_DEFAULTS = Options()


class JobBuilder:
    """Checks jobs and applies the policies of call, type and settings, in this order."""

    def __init__(self, registry: Registry, settings: Settings, strict: bool, unique: Unique | None = None) -> None:
        self._registry = registry
        self._settings = settings
        self._strict = strict  # refuse types without a handler
        self._unique = unique  # policy of jobs whose call and type name none

    def new(self, type_name: str, payload: dict[str, Any], options: Options = _DEFAULTS) -> NewJob:
        """Return a job ready for the store. Raises UnknownJobType, or BadPayload if its handler would not accept it."""
        return self.caster(type_name, options)(payload, uuid7())

    def many(self, jobs: Iterable[Given], options: Options) -> JobStream:
        """Like `new` for many jobs, which the stream builds when it is asked to."""
        return JobStream(self, jobs, options)

    def caster(self, type_name: str, options: Options) -> Caster:
        """Return a function that makes jobs of one type and one call; what they share is computed here."""
        declared = self._registry.require(type_name) if self._strict else self._registry.get(type_name)
        checked_name(type_name, "job type")
        options.check(type_name)
        settings = self._settings
        bytes_max = settings.payload_bytes_max
        check = declared.arguments if declared else None
        limited = declared if declared and declared.limit is not None and options.limit_key is None else None
        limit_key = options.limit_key
        company_id = options.company_id
        unique = options.unique or (declared and declared.unique) or self._default_unique(options)
        if unique is not None and unique.policy == "none":
            unique = None
        priority, max_attempts = options.priority, options.max_attempts
        if priority is None:
            priority = declared.priority if declared else 100
        if max_attempts is None:
            max_attempts = declared.retry.max_attempts if declared else settings.max_attempts
        queue = options.queue or (declared.queue if declared else settings.queue)
        visibility_ms = declared.visibility_ms if declared else settings.visibility_ms
        delay_seconds, at, traceparent = options.delay_seconds, options.at, trace.current()
        oldest_name = self._registry.oldest_name(type_name)
        new = tuple.__new__  # the named constructor would cost more than encoding a small payload

        def cast(payload: dict[str, Any], job_id: JobId) -> NewJob:
            text = encode(payload, type_name, bytes_max)
            if check is not None:
                check(text)
            key = limit_key if limited is None else _limit_key(limited, payload)
            company = company_id
            if company is None and ("companyId" in payload or "company_id" in payload):
                company = _company(payload)
            held = _unique_key(unique, oldest_name, payload, company) if unique else None
            return new(
                NewJob,
                (
                    job_id,
                    type_name,
                    text,
                    queue,
                    priority,
                    max_attempts,
                    visibility_ms,
                    delay_seconds,
                    at,
                    company,
                    key,
                    traceparent,
                    held,
                ),
            )

        return cast

    def _default_unique(self, options: Options) -> Unique | None:
        """Return the application's default for jobs of this origin, or None; scheduled jobs have no default."""
        if options.origin == "schedule" or (options.origin == "code" and self._settings.unique_for == "requests"):
            return None
        return self._unique


class JobStream:
    """Builds the jobs of one call piece by piece; computes what they share only once."""

    def __init__(self, builder: JobBuilder, jobs: Iterable[Given], options: Options) -> None:
        self._builder = builder
        self._source = iter(jobs)
        self._options = options
        self._casters: dict[str, Caster] = {}

    def take(self, count_max: int, bytes_max: int) -> list[NewJob]:
        """Build the next jobs: at most `count_max`, and of `bytes_max` payload bytes, roughly."""
        count = min(count_max, max(length_hint(self._source, count_max), 1))
        made, casters = [], self._casters
        with no_garbage():
            for (type_name, payload), job_id in zip(islice(self._source, count), uuid7s(count), strict=False):
                cast = casters.get(type_name)
                if cast is None:
                    cast = casters[type_name] = self._builder.caster(type_name, self._options)
                job = cast(payload, job_id)
                made.append(job)
                bytes_max -= len(job[2])
                if bytes_max <= 0:
                    break
        return made

    def take_all(self) -> list[NewJob]:
        """Build all jobs that are left."""
        left = list(self._source)
        self._source = iter(left)
        return self.take(len(left), sys.maxsize)


def softened(job: NewJob) -> NewJob:
    """Return the job with on_conflict RETURN_EXISTING, so that a taken key is no error."""
    if job.unique is None or job.unique.on_conflict is OnConflict.RETURN_EXISTING:
        return job
    return job._replace(unique=replace(job.unique, on_conflict=OnConflict.RETURN_EXISTING))


def _unique_key(unique: Unique, type_name: str, payload: dict[str, Any], company_id: str | None) -> UniqueKey:
    """Return the unique key within the job's company: a duplicate must not reveal another company's jobs."""
    key = _key_of(unique.key(payload), type_name) if callable(unique.key) else unique.key
    key = key or fingerprint(type_name, payload)
    if company_id is not None:
        key = f"{company_id}\x1f{key}"  # neither part can contain the separator
    return UniqueKey(key, unique.seconds, unique.policy == "while_active", unique.on_conflict, unique.newest_wins)


def _key_of(key: object, type_name: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= NAME_LENGTH_MAX or not key.isprintable():
        raise BadPayload(f"{type_name}: its unique key must be 1 to {NAME_LENGTH_MAX} printable characters")
    return key


def _limit_key(declared: JobType, payload: dict[str, Any]) -> str:
    assert declared.limit is not None
    if declared.limit_by is None:
        return declared.limit
    if declared.limit_by not in payload:
        raise BadPayload(f"{declared.name}: its limit counts by {declared.limit_by!r}, which the payload lacks")
    key = f"{declared.limit}:{payload[declared.limit_by]}"
    if len(key) > NAME_LENGTH_MAX or not key.isprintable():
        raise BadPayload(
            f"{declared.name}: {declared.limit_by} makes a limit key that is not {NAME_LENGTH_MAX} printable characters"
        )
    return key


def _company(payload: dict[str, Any]) -> str | None:
    found = payload.get("companyId", payload.get("company_id"))
    return found if isinstance(found, str) and 0 < len(found) <= NAME_LENGTH_MAX and found.isprintable() else None

"""Call and Calls: the first argument of an operation's function, with its job and the HTTP methods."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rowlock.errors import SettingsError, Snooze
from rowlock.jobs.job import Job
from rowlock.sync.client import Caller, Client
from rowlock.sync.response import Answer
from rowlock.sync.subject_lock import SubjectLock, outdated

_TAKEN_SECONDS = (0.3, 1.0)


class Calls:
    """Makes the calls of one attempt at one or more jobs, within the limits of the service.

    Each method returns an answer with a 2xx status or a status in `accept`, and raises CallFailed, CallRefused or
    CallUncertain for any other. Do not catch these: the queue retries or fails the job accordingly. A call with a
    `group` counts for the limits of that group as well.
    """

    def __init__(
        self, jobs: Sequence[Job], client: Client, token: str | None, subject_lock: SubjectLock | None
    ) -> None:
        self.jobs = tuple(jobs)
        self._client = client
        self._caller = Caller(token)
        self._subject_lock = subject_lock

    @property
    def account(self) -> str:
        """The account whose limits the calls count for: "integration:account"."""
        return self._client.key

    @property
    def uncertain(self) -> bool:
        """Whether an earlier attempt may have reached the service: then look up a record before creating it."""
        # The lease, not the attempt number: a release after a worker's stop or a rate limit does not count an attempt.
        return any(job.lease > 1 for job in self.jobs)

    def plain(self, text: str) -> str:
        """Return a text from the service with our credentials redacted: the service may repeat them."""
        return self._client.plain(text, self._caller)

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """GET this path."""
        return await self.request("GET", path, params=params, group=group, accept=accept)

    async def post(
        self,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """POST this JSON."""
        return await self.request("POST", path, json=json, params=params, group=group, accept=accept)

    async def patch(
        self,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """PATCH this JSON."""
        return await self.request("PATCH", path, json=json, params=params, group=group, accept=accept)

    async def put(
        self,
        path: str,
        json: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """PUT this JSON."""
        return await self.request("PUT", path, json=json, params=params, group=group, accept=accept)

    async def delete(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """DELETE this path."""
        return await self.request("DELETE", path, params=params, group=group, accept=accept)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """Make one call with any method. Quote payload values in the path with urllib.parse.quote."""
        return await self._client.call(
            method,
            path,
            self._caller,
            json=json,
            params=params,
            group=group,
            accept=accept,
            subject_lock=self._subject_lock,
        )


class Call(Calls):
    """Makes the calls of one attempt at one job."""

    def __init__(
        self,
        job: Job,
        place: str,
        client: Client,
        token: str | None,
        subject_lock: SubjectLock | None,
        subject: str | None,
    ) -> None:
        super().__init__([job], client, token, subject_lock)
        self.job = job
        self.place = place  # position in the order of jobs
        self.subject = subject
        self.written: set[str] = set()

    def fresh(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the properties that no newer job about the same subject has written.

        When the function returns they are recorded as written by this job, so that a late retry of an older job does
        not overwrite them.
        """
        if self.subject is None:
            raise SettingsError(f"{self.job.type}: fresh() needs about= to know what the properties are of")
        marks = {} if self._subject_lock is None else self._subject_lock.marks.get(self.subject, {})
        found = {name: value for name, value in properties.items() if not outdated(marks.get(name), self.place)}
        self.written |= set(found)
        return found

    async def hold(self, subject: str) -> None:
        """Lock another subject as well, until the function returns.

        Raises Snooze if another job holds it: the job is retried soon and the attempt does not count.
        """
        if self._subject_lock is None:
            if self.job._context.leased:
                raise SettingsError(f"{self.job.type}: hold() needs about=, or nothing is held")
        elif not await self._subject_lock.more(subject):
            low, high = _TAKEN_SECONDS
            raise Snooze(random.uniform(low, high), f"another job is at work on {subject}")  # noqa: S311

"""What a function of an operation gets: its job, and the calls that it may make."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rowlock.errors import SettingsError, Snooze
from rowlock.jobs.job import Job
from rowlock.sync.answer import Answer
from rowlock.sync.hold import Hold, outdated
from rowlock.sync.line import Caller, Line

_TAKEN_SECONDS = (0.3, 1.0)


class Calls:
    """The calls that one attempt at some jobs may make; each is made within the limits of the service.

    A 2xx answer, and one whose status is in `accept`, is returned. CallFailed, CallRefused or CallUncertain is raised
    for all else; leave them to the queue, which knows what they mean. A group counts for limits of its own as well.
    """

    def __init__(self, jobs: Sequence[Job], line: Line, token: str | None, hold: Hold | None) -> None:
        self.jobs = tuple(jobs)
        self._line = line
        self._caller = Caller(token)
        self._hold = hold

    @property
    def account(self) -> str:
        """Whose limits the calls count for: "integration:account"."""
        return self._line.key

    @property
    def uncertain(self) -> bool:
        """Whether an earlier attempt may have reached the other side: then look before you create."""
        # The lease, not the attempt, which is given back when a worker stops, or a limit is reached, half-way.
        return any(job.lease > 1 for job in self.jobs)

    def plain(self, text: str) -> str:
        """A text of the service's without our credentials, which it may repeat."""
        return self._line.plain(text, self._caller)

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
    ) -> Answer:
        """Ask for what is at this path."""
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
        """DELETE what is at this path."""
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
        """Make one call, with any method; what comes from a payload goes into the path with urllib.parse.quote."""
        return await self._line.call(
            method, path, self._caller, json=json, params=params, group=group, accept=accept, hold=self._hold
        )


class Call(Calls):
    """One attempt at one job, and the calls that it may make."""

    def __init__(self, job: Job, line: Line, token: str | None, hold: Hold | None, subject: str | None) -> None:
        super().__init__([job], line, token, hold)
        self.job = job
        self.subject = subject
        self.written: set[str] = set()

    def fresh(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Those of these properties that no newer job about the same subject has written.

        When the function has returned they count as written by this job, so that no older one, tried again late,
        writes over them.
        """
        if self.subject is None:
            raise SettingsError(f"{self.job.type}: fresh() needs about= to know what the properties are of")
        marks = {} if self._hold is None else self._hold.marks.get(self.subject, {})
        found = {name: value for name, value in properties.items() if not outdated(marks.get(name), self.job.id)}
        self.written |= set(found)
        return found

    async def hold(self, subject: str) -> None:
        """Have no other job call about this as well, until the function has returned.

        Raises Snooze while another does: the job is tried again soon, and no attempt is spent.
        """
        if self._hold is None:
            if self.job._context.leased:
                raise SettingsError(f"{self.job.type}: hold() needs about=, or nothing is held")
        elif not await self._hold.more(subject):
            low, high = _TAKEN_SECONDS
            raise Snooze(random.uniform(low, high), f"another job is at work on {subject}")  # noqa: S311

"""Test helpers for applications: a movable clock, a worker that drains the queues, and assertions on jobs.

import pytest
from rowlock import Job, Rowlock
from rowlock.testing import FakeClock, assert_enqueued, assert_not_enqueued, drain

@pytest.fixture
async def app(tmp_path):
    app = Rowlock(f"sqlite:///{tmp_path}/jobs.db", clock=FakeClock())

    @app.job("greet")
    async def greet(job: Job, name: str) -> dict:
        await app.enqueue("remind", {"name": name}, delay_seconds=3600)
        return {"said": f"Hello {name}"}

    @app.job("remind")
    async def remind(job: Job, name: str) -> None: ...

    async with app:
        await app.migrate()
        yield app

async def test_a_greeting_is_followed_by_a_reminder(app):
    await app.enqueue("greet", {"name": "Ada"})
    assert_enqueued(app, "greet", {"name": "Ada"})
    assert_not_enqueued(app, "remind")

    [greeted] = await drain(app)
    assert greeted.result == '{"said":"Hello Ada"}'

    assert await drain(app) == []          # the reminder is not due
    app.clock.advance(hours=1)
    [reminded] = await drain(app)
    assert reminded.type == "remind"
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rowlock.app import Rowlock
from rowlock.clock import FakeClock
from rowlock.jobs.payload import loads
from rowlock.storage.records import JobFilter, JobRecord, Status

_PAGE = 500
_SHOWN = 10


class JobsFailed(AssertionError):
    """Raised by `drain` when jobs failed; `jobs` has their records."""

    def __init__(self, jobs: list[JobRecord]) -> None:
        self.jobs = jobs
        lines = [f"{job.type} {job.id}, attempt {job.attempts}/{job.max_attempts}: {job.error}" for job in jobs]
        super().__init__(f"{len(jobs)} of the jobs failed:\n" + _listed(lines))


async def drain(app: Rowlock, *queues: str, raise_failures: bool = True) -> list[JobRecord]:
    """Run jobs in this process until nothing is ready, and return the records of those that ran, oldest first.

    Without names, it drains all queues of the application. The application's clock decides what is ready: delayed jobs
    and retries in backoff run once a FakeClock has moved past their time. Raises JobsFailed if an attempt failed, for
    good or to be retried, unless `raise_failures` is False.
    """
    before = {job.id: job for job in await _all(app, JobFilter())}
    await app.work(*queues, drain=True)
    ran = []
    failed = []
    for job in reversed(await _all(app, JobFilter())):
        earlier = before.get(job.id)
        if job.lease == (earlier.lease if earlier else 0):
            continue
        ran.append(job)
        spent = job.attempts - (earlier.attempts if earlier else 0)
        if job.status is Status.FAILED or (job.status is Status.QUEUED and spent > 0):
            failed.append(job)
    if failed and raise_failures:
        raise JobsFailed(failed)
    return ran


def assert_enqueued(
    app: Rowlock,
    type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    count: int | None = None,
    status: Status | str | None = Status.QUEUED,
) -> list[JobRecord]:
    """Assert that a matching job waits, delayed or not, and return the records of all that match, oldest first.

    A payload matches if it has at least these fields with these values. With `count`, exactly `count` jobs must match.
    To find jobs that ran, pass another `status`, or None for any. Callable from async and from plain tests.
    """
    jobs = _ask(app)
    found = _matching(jobs, type, payload, queue, status)
    if len(found) == count or (count is None and found):
        return found
    wanted = "at least 1" if count is None else str(count)
    raise AssertionError(
        f"expected {wanted} {_described(app, type, payload, queue, status)}, found {len(found)}\n"
        + _present(app, jobs, type)
    )


def assert_not_enqueued(
    app: Rowlock,
    type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    status: Status | str | None = Status.QUEUED,
) -> None:
    """Assert that no matching job waits; the parameters are those of `assert_enqueued`."""
    jobs = _ask(app)
    found = _matching(jobs, type, payload, queue, status)
    if found:
        raise AssertionError(
            f"expected no {_described(app, type, payload, queue, status)}, found {len(found)}\n"
            + _present(app, jobs, type)
        )


def _ask(app: Rowlock) -> list[JobRecord]:
    """Return all jobs, oldest first, through separate connections, whether or not the caller runs an event loop."""

    async def all_jobs() -> list[JobRecord]:
        async with app:
            return (await _all(app, JobFilter()))[::-1]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(all_jobs())).result()


async def _all(app: Rowlock, where: JobFilter) -> list[JobRecord]:
    page = await app.store.page(where, _PAGE)
    found = page.jobs
    while page.next_cursor is not None:
        page = await app.store.page(where, _PAGE, page.next_cursor)
        found += page.jobs
    return found


def _matching(
    jobs: list[JobRecord],
    type: str,
    payload: Mapping[str, Any] | None,
    queue: str | None,
    status: Status | str | None,
) -> list[JobRecord]:
    return [
        job
        for job in jobs
        if job.type == type
        and (queue is None or job.queue == queue)
        and (status is None or job.status is Status(status))
        and (payload is None or _within(payload, loads(job.payload)))
    ]


def _within(part: Any, whole: Any) -> bool:
    """Return whether `whole` contains `part`; objects may have more fields, at any depth."""
    if isinstance(part, Mapping):
        return isinstance(whole, dict) and all(key in whole and _within(part[key], whole[key]) for key in part)
    return bool(part == whole)


def _described(
    app: Rowlock, type: str, payload: Mapping[str, Any] | None, queue: str | None, status: Status | str | None
) -> str:
    text = f"{'' if status is None else f'{Status(status).value} '}job of type {type!r}"
    if queue is not None:
        text += f" on queue {queue!r}"
    if payload is not None:
        text += f" with {app.redact.value(dict(payload))!r}"
    return text


def _present(app: Rowlock, jobs: list[JobRecord], type: str) -> str:
    """Describe the jobs of this type, or else the types that exist."""
    lines = [
        f"{job.id} {job.status.value} on {job.queue!r}: {app.redact.value(loads(job.payload))!r}"
        for job in jobs
        if job.type == type
    ]
    if lines:
        return f"jobs of type {type!r}:\n" + _listed(lines)
    if not jobs:
        return "the store holds no jobs at all"
    counts = Counter(job.type for job in jobs)
    return "jobs of other types:\n" + _listed([f"{count} × {name!r}" for name, count in counts.most_common()])


def _listed(lines: list[str]) -> str:
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join(f"  {line}" for line in lines[:_SHOWN] + more)


__all__ = ["FakeClock", "JobsFailed", "assert_enqueued", "assert_not_enqueued", "drain"]

"""From a type, a payload and options to a job for a store; no store is used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock import Backoff, Job, Rowlock, Unique, UnknownJobType
from rowlock.ids import is_uuid
from rowlock.jobs.new_jobs import JobBuilder, Options, softened
from rowlock.jobs.payload import fingerprint
from rowlock.settings import load
from rowlock.storage.records import NewJob, OnConflict, UniqueKey


def application(**settings: Any) -> Rowlock:
    app = Rowlock(settings=load(database_url="sqlite:///unused.db", **settings))
    app.limit("api", concurrency=1)
    app.queue("mail", visibility_seconds=90)

    @app.job("send", queue="mail", priority=7, retry=Backoff(max_attempts=9), limit="api", limit_by="company_id")
    async def send(job: Job, company_id: str, to: str = "") -> None: ...

    @app.job("plain")
    async def plain(job: Job) -> None: ...

    return app


def prepared(app: Rowlock, type_name: str, payload: dict[str, Any], strict: bool = True, **options: Any) -> NewJob:
    return JobBuilder(app.registry, app.settings, strict).new(type_name, payload, Options(**options))


def test_a_job_has_what_its_type_declares() -> None:
    job = prepared(application(), "send", {"company_id": "acme"})
    assert is_uuid(job.id)
    assert job[1:] == (
        ("send", '{"company_id":"acme"}', "mail", 7, 9, 90_000, 0.0, None, "acme", "api:acme", None, None)
    )


def test_what_the_caller_says_comes_first() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    job = prepared(
        application(),
        "send",
        {"company_id": "acme"},
        queue="other",
        priority=1,
        max_attempts=2,
        delay_seconds=3,
        at=at,
        company_id="blue",
        limit_key="api:blue",
        unique=Unique.window(60, key="k"),
    )
    assert (job.queue, job.priority, job.max_attempts, job.delay_seconds, job.available_at) == ("other", 1, 2, 3, at)
    assert (job.company_id, job.limit_key) == ("blue", "api:blue")
    assert job.unique == UniqueKey("blue\x1fk", 60, False, OnConflict.REJECT)


def test_softening_changes_nothing_but_what_a_taken_key_means() -> None:
    unique = UniqueKey("k", 60, True, OnConflict.REJECT, newest_wins=True)
    job = softened(NewJob("id", "a", "{}", unique=unique))
    assert job.unique == UniqueKey("k", 60, True, OnConflict.RETURN_EXISTING, newest_wins=True)


def test_a_job_of_unknown_type_has_the_settings() -> None:
    app = application(queue="jobs", max_attempts=3, visibility_ms=60_000)
    job = prepared(app, "elsewhere", {}, strict=False)
    assert (job.type, job.queue, job.priority, job.max_attempts, job.visibility_ms) == (
        "elsewhere",
        "jobs",
        100,
        3,
        60_000,
    )
    with pytest.raises(UnknownJobType):
        prepared(app, "elsewhere", {})


def test_the_unique_key_is_the_hash_unless_one_is_given() -> None:
    app = application()
    by_hash = prepared(app, "plain", {"b": 1, "a": 2}, unique=Unique.while_active(on_conflict="return_existing"))
    assert by_hash.unique == UniqueKey(fingerprint("plain", {"a": 2, "b": 1}), None, True, OnConflict.RETURN_EXISTING)
    assert prepared(app, "plain", {}).unique is None


def test_ids_are_in_the_order_of_the_jobs() -> None:
    app = application()
    ids = [prepared(app, "plain", {}).id for _ in range(50)]
    assert ids == sorted(ids)

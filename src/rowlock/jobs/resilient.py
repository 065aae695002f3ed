"""Resilient mode: with QUEUE_RESILIENT_MODE=true a job is run where it is enqueued, at once, without the queue."""

from __future__ import annotations

import asyncio
from typing import Any

from rowlock.errors import Outcome
from rowlock.jobs.classify import describe
from rowlock.jobs.context import Context
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import Job
from rowlock.jobs.registry import Registry
from rowlock.storage.records import Claimed, NewJob, Receipt

_OWNER = "00000000-0000-7000-8000-000000000000"


async def run_now(engine: Engine, new: NewJob, log: Any) -> Receipt:
    """Run the handler and return when it is done; its exception is the caller's. One attempt, nothing recorded."""
    registry: Registry = engine.registry
    declared = registry.require(new.type)
    claimed = Claimed(new.id, 1, 1, 1, 0, new.priority, new.type, new.payload, new.company_id, new.limit_key, new.trace)
    loop = asyncio.get_running_loop()
    job = Job(claimed, Context(engine.store, _OWNER, new.queue, engine.enqueuer, loop, leased=False))
    given = {} if declared.arguments is None or declared.batch is not None else declared.arguments(new.payload)
    first: Any = job if declared.batch is None else [job]
    log.info("job.started", jobs=[new.id], type=new.type, mode="resilient")
    try:
        if declared.is_async:
            result = await declared.handler(first, **given)
        else:
            result = await asyncio.to_thread(declared.handler, first, **given)
        if declared.batch is not None and isinstance(result, list) and isinstance(result[0], BaseException):
            raise result[0]
    except Exception as error:
        level = log.warning if isinstance(error, Outcome) else log.error
        level("job.failed", job=new.id, type=new.type, reason=describe(error, engine.redact), mode="resilient")
        raise
    log.info("job.succeeded", count=1, types={new.type: 1}, jobs=[new.id], mode="resilient")
    return Receipt(new.id, True)

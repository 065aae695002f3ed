"""An application whose payloads come from strangers.

HOSTILE_MUTANT=import_by_name makes its registry look up unknown types as dotted names, as some queues do.
HOSTILE_MUTANT=redaction_off lets everything through.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import Any

from rowlock import Backoff, Job, Rowlock
from rowlock.jobs.registry import JobType
from rowlock.observe.redaction import Redactor

if os.environ.get("HOSTILE_MUTANT") == "redaction_off":
    Redactor.text = lambda self, text: text  # type: ignore[method-assign]
    Redactor.value = lambda self, value, depth=0: value  # type: ignore[method-assign]

app = Rowlock(allow_unknown_types=True)
once = Backoff(max_attempts=1)
twice = Backoff(max_attempts=2, base_seconds=0)


@app.job("echo", retry=once)
async def echo(job: Job) -> dict[str, Any]:
    """Returns its payload."""
    return job.payload


@app.job("loose", retry=once)
async def loose(job: Job, **fields: Any) -> dict[str, Any]:
    """Takes any fields."""
    return fields


@app.job("strict", retry=once)
async def strict(job: Job, token: int, nested: dict[str, int] | None = None) -> None:
    """Refuses text where it wants numbers."""


@app.job("report", retry=once)
async def report(job: Job, text: str) -> dict[str, str]:
    """Says in its progress what it should keep to itself, and results in it."""
    job.progress(50, text)
    return {"password": text, "note": text}


@app.job("fail", retry=twice)
async def fail(job: Job, text: str, **others: Any) -> None:
    """Fails with a message from outside, and with another error as its cause."""
    try:
        raise ValueError(text)
    except ValueError as error:
        raise RuntimeError(f"calling out failed: {text}") from error


def _by_name(name: str) -> JobType | None:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        handler = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        return None
    return replace(app.registry.require("echo"), name=name, is_async=False, handler=handler)


class _Importing(dict[str, JobType]):
    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        return super().get(name) or _by_name(name)


if os.environ.get("HOSTILE_MUTANT") == "import_by_name":
    from rowlock.jobs.engine import Engine

    known = Engine.types.fget
    Engine.types = property(lambda self: _Importing(known(self)))  # type: ignore[assignment,misc]

"""Structured logs: readable on a terminal, JSON lines elsewhere; every value redacted on its way out."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger

from rowlock.observe.redact import REDACTED, Redactor

_redactor = Redactor()
_chosen: dict[str, Any] = {}
_out: TextIO = sys.stderr
_IDS_SHOWN = 5


def configure(
    level: str = "info", style: str = "auto", redact: Redactor | None = None, stream: TextIO | None = None
) -> None:
    """Send logs to `stream` (standard error), in the style asked for; `auto` looks whether it is a terminal."""
    global _redactor, _out
    _redactor = redact or Redactor()
    _out = out = stream or sys.stderr
    readable = style == "text" or (style == "auto" and out.isatty())
    # Not structlog's own configuration: that is the user's, whose tracebacks may show what we redact.
    _chosen.update(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if readable else "iso", utc=not readable),
            structlog.processors.format_exc_info,  # without the values of variables, and before redaction
            _redact,
            *([_shorten, _harmless, structlog.dev.ConsoleRenderer(colors=out.isatty())] if readable else [_json]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=True,
    )


def reset() -> None:
    """Forget what was configured."""
    _chosen.clear()


def get(**bound: Any) -> Any:
    """A logger; what is bound stands in each of its lines."""
    if not _chosen:
        configure()
    # A line in one write, its end included: processes that share the stream do not get into each other's lines.
    return structlog.wrap_logger(structlog.WriteLogger(_out), **_chosen, **bound)


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if name in ("jobs", "types"):  # ids, and the names of job types: hundreds of values, and none a secret
            continue
        if name != "event" and _redactor.is_secret(name):
            event[name] = REDACTED
        elif isinstance(value, str | BaseException):
            # An odd file name in a message may hold half characters, which no stream takes.
            event[name] = _redactor.text(str(value).encode("utf-8", "backslashreplace").decode())
        elif isinstance(value, dict | list | tuple):
            event[name] = _redactor.value(value)
    return event


def _shorten(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    jobs = event.get("jobs")
    if isinstance(jobs, list) and len(jobs) > _IDS_SHOWN:
        event["jobs"] = [*jobs[:_IDS_SHOWN], f"… {len(jobs) - _IDS_SHOWN} more"]
    return event


def _harmless(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A message may hold what a terminal obeys: show it instead."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in value)
    return event


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    try:
        return orjson.dumps(event, default=str).decode()
    except TypeError:  # a value deep inside that orjson does not take: no log line may end a loop
        return json.dumps(event, default=repr)

"""Structured logs: readable on a terminal, JSON lines elsewhere; every value is redacted before it is written."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from rowlock.observe.redaction import REDACTED, Redactor

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

_redactor = Redactor()
_form: tuple[int, bool, bool] | None = None  # lowest level, readable (else JSON), in colour
_chosen: dict[str, Any] = {}  # options of structlog, made from _form with the first logger
_out: TextIO = sys.stderr
_IDS_SHOWN = 5
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_CHATTY = ("httpx", "httpcore", "pymongo")  # several lines for every request or command

current_jobs: ContextVar[tuple[str | list[str], str] | None] = ContextVar("rowlock_jobs", default=None)
"""Id (of a batch: ids) and type of the job that the running handler works on."""


def configure(
    level: str = "info", style: str = "auto", redact: Redactor | None = None, stream: TextIO | None = None
) -> None:
    """Write logs to `stream` (default: standard error), in style text, json or auto: text on a terminal, else json."""
    global _redactor, _out, _form
    _redactor = redact or Redactor()
    _out = out = stream or sys.stderr
    terminal = out.isatty()
    _form = getattr(logging, level.upper()), style == "text" or (style == "auto" and terminal), terminal
    _chosen.clear()
    if _bridge in logging.getLogger().handlers:
        logging.getLogger().setLevel(_form[0])


def reset() -> None:
    """Undo `configure` and `bridge`."""
    global _form
    _form = None
    _chosen.clear()
    root = logging.getLogger()
    if _bridge in root.handlers:
        root.removeHandler(_bridge)
        root.setLevel(logging.WARNING)


def bridge() -> None:
    """Write the records of the standard library's `logging` to these logs, with the job that they are about.

    Only for processes that Rowlock owns, as it configures the root logger. An application can override this by
    configuring it afterwards (`logging.config.dictConfig`, or `basicConfig(force=True)`).
    """
    root = logging.getLogger()
    if _bridge not in root.handlers:
        root.addHandler(_bridge)
    root.setLevel(logging.INFO if _form is None else _form[0])
    for name in _CHATTY:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)


class _Bridge(logging.Handler):
    """Writes records of the standard library's loggers as Rowlock's log lines: redacted, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            more: dict[str, Any] = {"logger": record.name}
            about = current_jobs.get()
            if about is not None:
                ids, more["type"] = about
                more["job" if isinstance(ids, str) else "jobs"] = ids
            if record.exc_info:
                more["exception"] = _formatter.formatException(record.exc_info)
            if record.stack_info:
                more["stack"] = record.stack_info
            get().log(_known_level(record.levelno), record.getMessage(), **more)
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Log where the record was made and why it cannot be written; its message and arguments may contain secrets."""
        reason = type(sys.exception()).__name__
        with suppress(Exception):  # logging must not raise into the calling code
            get().error("log.malformed", logger=record.name, at=f"{record.pathname}:{record.lineno}", error=reason)


def _known_level(number: int) -> int:
    """Return the highest known level at or below the given one, or the lowest known level."""
    return max((level for level in _LEVELS if level <= number), default=_LEVELS[0])


_formatter = logging.Formatter()
_bridge = _Bridge()


def get(**bound: Any) -> Any:
    """Return a logger that adds `bound` to each of its lines."""
    import structlog  # here, because it loads rich: 70 ms of CPU, for commands that log nothing

    if not _chosen:
        _choose()
    # WriteLogger writes a line and its end at once, so that processes that share the stream do not mix their lines.
    return structlog.wrap_logger(structlog.WriteLogger(_out), **_chosen, **bound)


def _choose() -> None:
    import structlog

    if _form is None:
        configure()
    assert _form is not None
    level, readable, coloured = _form
    # Not structlog's global configuration: it is the user's, whose tracebacks may show what we redact.
    _chosen.update(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if readable else "iso", utc=not readable),
            structlog.processors.format_exc_info,  # without the values of variables, and before redaction
            _redact,
            *([_shorten, _harmless, structlog.dev.ConsoleRenderer(colors=coloured)] if readable else [_json]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if name in ("jobs", "types"):  # ids, and the names of job types: hundreds of values, and none a secret
            continue
        if name != "event" and _redactor.is_secret(name):
            event[name] = REDACTED
        elif isinstance(value, str | BaseException):
            # An odd file name in a message may contain lone surrogates, which no stream accepts.
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
    """Escape unprintable characters, as a terminal would obey control sequences in a message."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in value)
    return event


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    try:
        return orjson.dumps(event, default=str).decode()
    except TypeError:  # a nested value that orjson does not accept: a log line must not end a loop
        return json.dumps(event, default=repr)

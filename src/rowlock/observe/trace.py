"""Trace context: carried from the producer to the handler when OpenTelemetry is installed and in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

try:
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _propagator = TraceContextTextMapPropagator()
    AVAILABLE = True
except ImportError:  # the extra `telemetry` is not installed
    AVAILABLE = False


def current() -> str | None:
    """Return the W3C traceparent of the current span, or None."""
    if not AVAILABLE or not _trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def continued(trace: str, name: str, **attributes: str) -> Iterator[None]:
    """Run the block in a span for the handler, a child of the producer's span."""
    if not AVAILABLE:
        yield
        return
    context = _propagator.extract({"traceparent": trace})
    tracer = _trace.get_tracer("rowlock")
    with tracer.start_as_current_span(name, context=context, kind=_trace.SpanKind.CONSUMER, attributes=attributes):
        yield

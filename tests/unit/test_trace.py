"""Trace context, with and without OpenTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from rowlock.observe import trace

CONTEXT = SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True, TraceFlags(1))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_span_under_way_is_a_w3c_traceparent() -> None:
    assert trace.current() is None
    with otel.use_span(NonRecordingSpan(CONTEXT)):
        assert trace.current() == PARENT
    assert trace.current() is None


def test_a_handler_runs_under_the_producers_trace() -> None:
    with trace.continued(PARENT, "send.email", job_id="x"):
        assert otel.get_current_span().get_span_context().trace_id == CONTEXT.trace_id
    assert not otel.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("nonsense", ["", "x", "00-zz-yy-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_nonsense_is_no_parent_and_no_error(nonsense: str) -> None:
    with trace.continued(nonsense, "send.email"):
        pass


def test_without_opentelemetry_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "AVAILABLE", False)
    with otel.use_span(NonRecordingSpan(CONTEXT)):
        assert trace.current() is None
    ran = []
    with trace.continued(PARENT, "send.email"):
        ran.append(True)
    assert ran == [True]

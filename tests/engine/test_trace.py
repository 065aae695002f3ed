"""Traces: the handler's span is a child of the producer's."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.running import drain, record
from rowlock import FakeClock, Job, Rowlock

_exporter = InMemorySpanExporter()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the official setter works once per process
    _exporter.clear()
    return _exporter


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_the_handlers_span_is_a_child_of_the_producers(
    app: Rowlock, spans: InMemorySpanExporter, plain: bool
) -> None:
    tracer = trace.get_tracer("user")

    def work() -> None:
        with tracer.start_as_current_span("query"):
            pass

    async def in_loop(job: Job) -> None:
        await asyncio.sleep(0)
        work()

    def in_thread(job: Job) -> None:
        work()

    app.job("send.email")(in_thread if plain else in_loop)
    with tracer.start_as_current_span("request"):
        receipt = await app.enqueue("send.email")
    await drain(app)
    request, handler, query = named(spans, "request"), named(spans, "send.email"), named(spans, "query")
    assert handler.parent is not None
    assert handler.parent.span_id == request.context.span_id
    assert handler.context.trace_id == request.context.trace_id
    assert handler.kind is trace.SpanKind.CONSUMER
    assert receipt.job_id in dict(handler.attributes or {}).values()
    assert query.parent is not None
    assert query.parent.span_id == handler.context.span_id


async def test_every_attempt_has_its_span_and_a_failed_one_says_so(
    app: Rowlock, spans: InMemorySpanExporter, clock: FakeClock
) -> None:
    @app.job("a")
    async def a(job: Job) -> None:
        if job.attempt == 1:
            raise RuntimeError("once")

    with trace.get_tracer("user").start_as_current_span("request"):
        await a.enqueue()
    for _ in range(2):
        await drain(app)
        clock.advance(2)
    failed, succeeded = [span for span in spans.get_finished_spans() if span.name == "a"]
    assert not failed.status.is_ok
    assert succeeded.status.is_ok
    assert failed.context.trace_id == succeeded.context.trace_id


async def test_jobs_that_a_handler_enqueues_belong_to_the_same_trace(app: Rowlock, spans: InMemorySpanExporter) -> None:
    @app.job("first")
    async def first(job: Job) -> None:
        await app.enqueue("second")
        async with job.transaction() as tx:
            await tx.enqueue("second")

    @app.job("second")
    def second(job: Job) -> None: ...

    with trace.get_tracer("user").start_as_current_span("request"):
        await first.enqueue()
    await drain(app)
    assert len([span for span in spans.get_finished_spans() if span.name == "second"]) == 2
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1


async def test_enqueued_in_bulk_or_from_synchronous_code_the_trace_goes_along(
    app: Rowlock, spans: InMemorySpanExporter
) -> None:
    app.job("a")(lambda job: None)
    with trace.get_tracer("user").start_as_current_span("request"):
        await app.enqueue_many([("a", {}), ("a", {})])
        await asyncio.to_thread(app.blocking.enqueue, "a")
    await drain(app)
    handlers = [span for span in spans.get_finished_spans() if span.name == "a"]
    assert {span.parent and span.parent.span_id for span in handlers} == {named(spans, "request").context.span_id}
    assert len(handlers) == 3


async def test_without_a_span_there_is_nothing_to_carry(app: Rowlock, spans: InMemorySpanExporter) -> None:
    @app.job("a")
    async def a(job: Job) -> None: ...

    receipt = await a.enqueue()
    assert (await record(app, receipt.job_id)).trace is None
    await drain(app)
    assert spans.get_finished_spans() == ()


async def test_a_trace_that_is_nonsense_does_not_harm_the_job(app: Rowlock, spans: InMemorySpanExporter) -> None:
    ran = []

    @app.job("a")
    async def a(job: Job) -> None:
        ran.append(job.id)

    new = app.engine.builder.new("a", {})._replace(trace="00-nonsense")
    await app.store.enqueue([new])
    await drain(app)
    assert ran == [new.id]

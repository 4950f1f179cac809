"""Exports spans with the OpenTelemetry SDK, which is only imported here; the extra `telemetry` installs it.

The ids derive from the run id, so the trace of a known run can be found, and a child run is part of its parent's
call in the same trace, whichever process ran it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from threading import Thread

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.telemetry.spans import RunSpans, Span, SpanPlace

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_SECONDS = 3.0
"""How long closing an engine waits for the last spans."""
NANOSECONDS_PER_SECOND = 1_000_000_000
KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


def compute_trace_id(run_id: RunId) -> int:
    """Return the id of the trace that contains a run and all of its child runs."""
    return int.from_bytes(blake2b(run_id.encode(), digest_size=16, person=b"treadle trace").digest(), "big")


def compute_span_id(run_id: RunId, key: str = "") -> int:
    """Return the id of a span of a run; without a key, that of the run itself."""
    named = f"{run_id}/{key}".encode()
    return int.from_bytes(blake2b(named, digest_size=8, person=b"treadle span").digest(), "big")


class _GivenIds(IdGenerator):
    """Supplies ids that were computed beforehand."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return True  # for sampling, a digest is as good as a random number


class Traces:
    """Implements `Watcher`. Spans wait in a queue of the SDK, which sends them from its own thread."""

    def __init__(self, processor: SpanProcessor, resource: Resource, contents: bool = False) -> None:
        self._ids = _GivenIds()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("treadle")
        self._contents = contents
        self._runs: dict[RunId, RunSpans] = {}

    def remember(self, event: Event) -> None:
        self._find_spans(event.origin).apply(event.sequence, event.timestamp, event.data)

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        run = self._find_spans(origin)
        for sequence, draft in enumerate(drafts, first):
            for span in run.apply(sequence, draft.timestamp, draft.data):
                self._export(run, span)
        if drafts and isinstance(drafts[-1].data, RunEnd):
            del self._runs[origin.run_id]

    def forget(self, run_id: RunId) -> None:
        self._runs.pop(run_id, None)

    async def close(self, timeout_seconds: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Send queued spans, but do not wait longer than the timeout for the collector."""
        sending = Thread(target=self._provider.shutdown, name="treadle-traces", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, timeout_seconds)
        if sending.is_alive():
            logger.warning(
                "the trace collector did not respond within %g s; the last spans are lost", timeout_seconds
            )

    def _find_spans(self, origin: Origin) -> RunSpans:
        run = self._runs.get(origin.run_id)
        if run is None:
            run = self._runs[origin.run_id] = RunSpans(origin, self._contents)
        return run

    def _export(self, run: RunSpans, span: Span) -> None:
        outer = read_trace_parent(run.trace_parent)
        trace_id = compute_trace_id(run.root) if outer is None else outer.trace_id
        self._ids.trace_id, self._ids.span_id = trace_id, compute_span_id(run.run_id, span.key)
        above = SpanPlace(run.run_id) if span.key else run.above
        made = self._tracer.start_span(
            span.name,
            context=self._make_parent_context(trace_id, above, outer),
            kind=KINDS[span.kind],
            attributes=span.attributes,
            start_time=_to_nanoseconds(span.began_at),
        )
        for moment in span.moments:
            made.add_event(moment.name, moment.attributes, _to_nanoseconds(moment.at))
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(_to_nanoseconds(span.ended_at))

    def _make_parent_context(self, trace_id: int, above: SpanPlace | None, outer: SpanContext | None) -> Context:
        """Return the context of the parent of a span: a span of a run, or the one in which the run was submitted. A
        span of a run ends later, so it does not exist yet; but whether it is sampled follows from its ids."""
        if above is None:
            return Context() if outer is None else set_span_in_context(NonRecordingSpan(outer), Context())
        if outer is None:
            sampled = self._provider.sampler.should_sample(Context(), trace_id, "").decision.is_sampled()
            flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        else:
            flags = outer.trace_flags
        parent = SpanContext(trace_id, compute_span_id(above.run_id, above.key), is_remote=False, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(parent), Context())


class SharedProcessor(SpanProcessor):
    """Passes spans to the processor of a program, which outlasts the engine."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        self._processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        self._processor.on_end(span)

    def shutdown(self) -> None:
        self._processor.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._processor.force_flush(timeout_millis)


def read_trace_parent(text: str) -> SpanContext | None:
    """Return the span that a W3C `traceparent` names, or None for an empty text."""
    if not text:
        return None
    _, trace_id, span_id, flags = text.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def create_exporter(
    environment: Mapping[str, str], version: str, contents: bool, processor: SpanProcessor | None = None
) -> Traces:
    """Return traces that a processor of the program gets, or that are sent where the standard OTEL_ variables say,
    by OTLP over HTTP."""
    known = {SERVICE_VERSION: version}
    named = environment.get("OTEL_SERVICE_NAME") or environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in named:
        known[SERVICE_NAME] = "treadle"
    chosen = BatchSpanProcessor(OTLPSpanExporter()) if processor is None else SharedProcessor(processor)
    return Traces(chosen, Resource.create(known), contents)


def _to_nanoseconds(at: float) -> int:
    return round(at * NANOSECONDS_PER_SECOND)

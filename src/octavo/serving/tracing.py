"""OpenTelemetry traces: a span for each request, with the phases of its engine requests below it.

Needs the "otel" extra, and is imported only where an endpoint is named. Attributes follow the
semantic conventions for generative AI; no prompt and no answer is among them. A caller's
`traceparent` header makes the span part of its trace.
"""

from __future__ import annotations

import os
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.datastructures import Headers
from starlette.types import Scope

from octavo import __version__
from octavo.serving.observe import QUIET
from octavo.serving.record import RequestRecord
from octavo.serving.request_timer import Timings

OPERATIONS = {
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/generate": "text_completion",
    "/api/embed": "embeddings",
}
"""gen_ai.operation.name of routes that run a model; those not listed chat."""

_propagator = TraceContextTextMapPropagator()


def trace_to(endpoint: str) -> Tracing:
    """Send spans to an OTLP/HTTP endpoint, such as http://collector:4318/v1/traces, in batches and
    from a thread of their own. The usual OTEL_ variables (headers, sampler, resource) hold."""
    named = "OTEL_SERVICE_NAME" in os.environ
    facts = {"service.version": __version__, **({} if named else {"service.name": "octavo"})}
    provider = TracerProvider(resource=Resource.create(facts))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Tracing(provider)


class Tracing:
    """An observe.Tracer over a provider, which is its own: `close` shuts it down."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("octavo", __version__)
        self._clock_offset_ns = time.time_ns() - time.monotonic_ns()

    def begin(self, scope: Scope, record: RequestRecord) -> Span | None:
        """A span that is open; None for probes."""
        if record.path == "/" or record.path.startswith(QUIET):
            return None
        headers = Headers(scope=scope)
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        span = self._tracer.start_span(
            record.method,
            context=_propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": record.method, "url.path": record.path},
        )
        record.trace_id = f"{span.get_span_context().trace_id:032x}"
        return span if isinstance(span, Span) else None  # else it is not sampled

    def end(self, span: Span | None, record: RequestRecord, status: int, route: str) -> None:
        """Say how it went, and close the span."""
        if span is None:
            return
        span.set_attributes(_request_attributes(record, status, route))
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        operation = OPERATIONS.get(route, "chat")
        span.update_name(
            f"{operation} {record.model}" if record.runs else f"{record.method} {route}"
        )
        if record.runs:
            span.set_attributes(_model_attributes(record, operation))
        for run in record.runs:
            self._phases(span, run)
        span.end()

    def close(self) -> None:
        """Send what is left; blocks for a while if the endpoint does not answer."""
        self._provider.shutdown()

    def _phases(self, parent: Span, run: Timings) -> None:
        """Spans for what the engine measured, one behind the other."""
        context = set_span_in_context(parent)
        start = int(1e9 * run.began_s) + self._clock_offset_ns
        for name, seconds in (
            ("queue", run.queue_s),
            ("prefill", run.prefill_s),
            ("decode", run.decode_s),
        ):
            if seconds is None:
                return
            end = start + int(1e9 * seconds)
            phase = self._tracer.start_span(name, context=context, start_time=start)
            phase.set_attribute("gen_ai.response.id", run.request_id)
            phase.end(end)
            start = end


def _request_attributes(
    record: RequestRecord, status: int, route: str
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "http.response.status_code": status,
        "http.route": route,
        "octavo.request_id": record.request_id,
    }
    return {**attributes, **({"octavo.tenant": record.tenant} if record.tenant else {})}


def _model_attributes(record: RequestRecord, operation: str) -> dict[str, AttributeValue]:
    lead = record.runs[0]
    params = lead.params
    shown: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "octavo",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": lead.request_id,
        "gen_ai.response.finish_reasons": [r for run in record.runs for r in run.finish_reasons],
        "gen_ai.request.choice.count": params.n,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.seed": params.seed,
        "gen_ai.usage.input_tokens": sum(run.prompt_tokens for run in record.runs),
        "gen_ai.usage.output_tokens": sum(run.output_tokens for run in record.runs),
        "gen_ai.usage.cache_read.input_tokens": sum(r.cached_tokens or 0 for r in record.runs),
        "gen_ai.response.time_to_first_chunk": lead.first_token_s,
        "octavo.preemptions": sum(run.num_preemptions for run in record.runs),
    }
    return {key: value for key, value in shown.items() if value is not None}

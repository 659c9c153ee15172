"""Sends a span per call where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set; the extra ``otel``.

A span continues the trace that the client's ``traceparent`` names. It says how many tokens the call
had and never what they are. The SDK reads its own variables, as in the control plane.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.gen_ai import OPERATIONS, PROVIDER, SpanAttribute
from flowmesh_core.openai.request import CHAT, OpenAiRequest
from flowmesh_core.protocol.serving import OK, STAGE_ENDED, CallEnded, StageProgress

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PARAMS = {
    "max_tokens": SpanAttribute.REQUEST_MAX_TOKENS,
    "max_completion_tokens": SpanAttribute.REQUEST_MAX_TOKENS,
    "seed": SpanAttribute.REQUEST_SEED,
    "temperature": SpanAttribute.REQUEST_TEMPERATURE,
    "top_p": SpanAttribute.REQUEST_TOP_P,
}


@dataclass(frozen=True, slots=True)
class StagedCall:
    """A request to a service with stages that has ended.

    Attributes:
        path: that it was sent to.
        service: as ``namespace/name``.
        tenant: the namespace that called.
        outcome: as the router's metrics count it.
        took_s: seconds since the request came.
        ended_ns: when it ended, in nanoseconds of Unix time.
        components: by stage.
        workers: by stage, where its last route has it.
    """

    request_id: str
    path: str
    service: str
    tenant: str
    outcome: str
    took_s: float
    ended_ns: int
    components: Mapping[str, str]
    workers: Mapping[str, str]


class StageSpan(NamedTuple):
    """A stage of such a request.

    Attributes:
        progress: what its hub said.
        heard_ns: when, in nanoseconds of Unix time.
        component: of the service.
        worker: that has run it.
    """

    progress: StageProgress
    heard_ns: int
    component: str
    worker: str


class CallSpans:
    """Makes spans of calls that have ended."""

    def __init__(self, provider: "TracerProvider") -> None:
        """Prepares a tracer; ``provider`` sends the spans."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - an extra
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("flowmesh.router")
        self._context_of = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._below = set_span_in_context

    def record(
        self,
        request: OpenAiRequest,
        headers: Mapping[str, str],
        *,
        service: str,
        tenant: str,
        outcome: str,
        ended: CallEnded | None,
        took_s: float,
    ) -> None:
        """Sends the span of a call that ends now.

        Args:
            request: that was answered.
            headers: of the request, by name in any case.
            service: as ``namespace/name``.
            tenant: the namespace that called.
            outcome: as the router's metrics count it.
            ended: what the replica said at the end; None where it did not.
            took_s: seconds since the request came.
        """
        end_ns = time.time_ns()
        operation = OPERATIONS[request.path]
        attributes: dict[str, str | int | float] = {
            SpanAttribute.OPERATION: operation,
            SpanAttribute.PROVIDER: PROVIDER,
            SpanAttribute.REQUEST_MODEL: request.model,
            "flowmesh.service": service,
            "flowmesh.tenant": tenant,
            "flowmesh.outcome": outcome,
        }
        for param, name in _PARAMS.items():
            value = request.body.get(param)
            if isinstance(value, int | float):
                attributes[name] = value
        if ended is not None:
            attributes[SpanAttribute.INPUT_TOKENS] = ended.tokens_in
            attributes[SpanAttribute.OUTPUT_TOKENS] = ended.tokens_out
        if outcome != OK:
            attributes[SpanAttribute.ERROR_TYPE] = outcome
        self._tracer.start_span(
            f"{operation} {request.model}",
            context=self._context_of(headers),
            kind=self._kind,
            attributes=attributes,
            start_time=end_ns - round(took_s * 1e9),
        ).end(end_ns)

    def record_stages(
        self, call: StagedCall, headers: Mapping[str, str], stages: Sequence[StageSpan]
    ) -> None:
        """Sends the span of a request to a service with stages, and one for each of its stages.

        Args:
            call: the request.
            headers: of the request, by name in any case.
            stages: that have begun, as far as their hubs have said.
        """
        attributes: dict[str, str | int | float] = {
            "flowmesh.service": call.service,
            "flowmesh.tenant": call.tenant,
            "flowmesh.outcome": call.outcome,
            "flowmesh.request": call.request_id,
        }
        if call.outcome != OK:
            attributes[SpanAttribute.ERROR_TYPE] = call.outcome
        name = "chat" if call.path == CHAT else "invoke"
        began_ns = call.ended_ns - round(call.took_s * 1e9)
        span = self._tracer.start_span(
            f"{name} {call.service}",
            context=self._context_of(headers),
            kind=self._kind,
            attributes=attributes,
            start_time=began_ns,
        )
        below = self._below(span)
        for stage in stages:
            self._record_stage(below, stage, began_ns, call.ended_ns)
        span.end(call.ended_ns)

    def _record_stage(
        self, above: "Context", stage: StageSpan, began_ns: int, ended_ns: int
    ) -> None:
        """Sends the span of a stage, and below it how long it has waited and run.

        A hub says times before now by its own clock, so the spans are moved into the request's.
        """
        progress = stage.progress
        start_ns = min(max(began_ns, stage.heard_ns - round(progress.age_s * 1e9)), ended_ns)
        run_ns = min(start_ns + round(progress.queue_s * 1e9), ended_ns)
        is_measured = progress.state == STAGE_ENDED and progress.queue_s + progress.compute_s > 0
        end_ns = (
            min(run_ns + round(progress.compute_s * 1e9), ended_ns) if is_measured else ended_ns
        )
        span = self._tracer.start_span(
            f"stage {progress.stage}",
            context=above,
            attributes={
                "flowmesh.stage": progress.stage,
                "flowmesh.component": stage.component,
                "flowmesh.worker": stage.worker,
                "flowmesh.state": progress.state,
            },
            start_time=start_ns,
        )
        if is_measured:
            below = self._below(span)
            self._tracer.start_span("queue", context=below, start_time=start_ns).end(run_ns)
            self._tracer.start_span("compute", context=below, start_time=run_ns).end(end_ns)
        span.end(end_ns)

    def close(self) -> None:
        """Sends the spans that wait; blocks for some seconds if the collector does not answer."""
        self._provider.shutdown()


def call_spans(environment: Mapping[str, str]) -> CallSpans | None:
    """Returns what sends spans of calls; None where the environment names no endpoint.

    Raises:
        FlowMeshError: the SDK is not installed.
    """
    named = [name for name in _ENDPOINTS if environment.get(name)]
    if not named or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise FlowMeshError(
            f"traces cannot be sent: {e}",
            where=named[0],
            remedy="install flowmesh-fabric[otel], or unset the variable",
        ) from e
    own_name = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": "flowmesh-router"}
    provider = TracerProvider(resource=Resource.create(own_name))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return CallSpans(provider)

"""Sends spans over OTLP/HTTP where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set; the extra ``otel``.

The SDK reads its own variables: endpoint, headers, certificates, ``OTEL_SERVICE_NAME``,
``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_BSP_*``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flowmesh_control.observability.spans import Span
from flowmesh_core.errors import FlowMeshError

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
QUEUE_SPANS = 1 << 16
"""Spans that wait to be sent; the SDK drops more than these and logs that it did."""


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment names an endpoint for spans."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and any(environment.get(name) for name in ENDPOINTS)


class OtlpExporter:
    """Sends spans in a thread of the SDK."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Loads the SDK and starts its thread.

        Raises:
            FlowMeshError: the SDK is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
            from opentelemetry.sdk.trace.export import (  # noqa: PLC0415 - an extra
                BatchSpanProcessor,
            )
        except ImportError as e:
            raise FlowMeshError(
                f"traces cannot be sent: {e}",
                where=next(name for name in ENDPOINTS if environment.get(name)),
                remedy="install flowmesh-fabric[otel], or unset the variable",
            ) from e
        named = Resource.create({"service.name": "flowmesh"})
        self._resource = Resource.create() if environment.get("OTEL_SERVICE_NAME") else named
        size = None if environment.get(QUEUE) else QUEUE_SPANS
        self._processor: SpanProcessor = BatchSpanProcessor(OTLPSpanExporter(), size)
        self._convert: Callable[[Span, Resource], ReadableSpan] = _converter()

    def send(self, span: Span) -> None:
        """Queues a span."""
        self._processor.on_end(self._convert(span, self._resource))

    def close(self) -> None:
        """Sends the queued spans; blocks for some seconds if the collector does not answer."""
        self._processor.shutdown()


def _converter() -> "Callable[[Span, Resource], ReadableSpan]":
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - an extra
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - an extra
    from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415 - an extra

    sampled = TraceFlags(TraceFlags.SAMPLED)

    def context(trace: int, number: int) -> SpanContext:
        return SpanContext(trace, number, is_remote=False, trace_flags=sampled)

    def convert(span: Span, resource: "Resource") -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=context(span.trace, span.number),
            parent=context(span.trace, span.parent) if span.parent else None,
            resource=resource,
            attributes=span.attributes,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
            start_time=round(span.start_s * 1e9),
            end_time=round(max(span.start_s, span.end_s) * 1e9),
        )

    return convert

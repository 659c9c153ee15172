"""Spans of calls of services, as OpenTelemetry's SDK collects them in memory."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind
from tests.flowmesh_serving.stack import MODEL, SERVICE, ask, echo_stack

from flowmesh_core.openai.gen_ai import OPERATIONS, SpanAttribute
from flowmesh_serving.call_spans import CallSpans, call_spans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.shutdown()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[CallSpans]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = CallSpans(provider)
    yield spans
    spans.close()


async def test_a_call_is_a_span_with_the_names_of_the_genai_conventions(
    tmp_path: Path, spans: CallSpans, exporter: InMemorySpanExporter
) -> None:
    async with echo_stack(tmp_path, spans=spans) as stack, stack.client as client:
        await ask(client, "one two", temperature=0.5, max_tokens=9, extra_headers=PARENT)
        async for _ in await ask(client, "a b c", stream=True):
            pass
        with pytest.raises(openai.BadRequestError):
            await ask(client, "one", n=9)
    whole, streamed = exporter.get_finished_spans()  # a refused request never became a call
    assert whole.name == streamed.name == f"chat {MODEL}"
    assert whole.kind is SpanKind.SERVER
    assert whole.attributes is not None
    assert dict(whole.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "flowmesh",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.usage.input_tokens": whole.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 2,
        "flowmesh.service": SERVICE,
        "flowmesh.tenant": SERVICE.partition("/")[0],
        "flowmesh.outcome": "ok",
    }
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert streamed.parent is None
    assert streamed.attributes is not None
    assert streamed.attributes["gen_ai.usage.output_tokens"] == 3
    assert whole.start_time is not None
    assert whole.end_time is not None
    assert whole.start_time <= whole.end_time


def test_the_names_are_those_of_the_conventions() -> None:
    known = {v for k, v in vars(gen_ai_attributes).items() if k.startswith("GEN_AI_")}
    assert {*SpanAttribute} <= known | {error_attributes.ERROR_TYPE}
    operations = {v.value for v in gen_ai_attributes.GenAiOperationNameValues}
    assert {*OPERATIONS.values(), "invoke_agent"} <= operations


def test_without_an_endpoint_nothing_is_loaded() -> None:
    assert call_spans({}) is None
    assert (
        call_spans({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}) is None
    )

"""Spans of calls of services, as OpenTelemetry's SDK collects them in memory."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind
from tests.flowmesh_serving.hand_hub import hand_hub
from tests.flowmesh_serving.raw_http import connected, request
from tests.flowmesh_serving.stack import (
    MODEL,
    SERVICE,
    Stack,
    ask,
    echo_stack,
    router_of,
    says,
    until,
)
from tests.flowmesh_serving.stage_stack import SERVICE as STAGED
from tests.flowmesh_serving.stage_stack import (
    URL,
    OneMachine,
    entry_of,
    python,
    service_of,
    stage_stack,
)

from flowmesh_core.openai.gen_ai import OPERATIONS, SpanAttribute
from flowmesh_core.protocol.router_services import ChatFields, ServiceEntry
from flowmesh_core.protocol.serving import ReplicaLoad, RunStages, StageValue
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


SPEC: dict[str, Any] = {
    "inputs": {"base": {"model": "smollm2-135m-instruct"}},
    "components": {
        "up": python("def up(batch):\n    return [c['q'].upper() for c in batch]", "up"),
        "twice": python("def twice(batch):\n    return [c['q'] * 2 for c in batch]", "twice"),
        "writer": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}},
    },
    "stages": [
        {"name": "loud", "component": "up", "inputs": {"q": "request.question"}},
        {"name": "double", "component": "twice", "inputs": {"q": "loud"}},
        {"name": "answer", "component": "writer", "with": {"prompt": "{{ double }}"}},
    ],
    "reply": {"text": "answer.completion"},
}


async def stage_spans(exporter: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """Waits until so many spans were sent; they are sent after the reply, in their order."""
    await until(lambda: len(exporter.get_finished_spans()) >= count)
    found = list(exporter.get_finished_spans())
    exporter.clear()
    return sorted(found, key=lambda s: (s.start_time or 0, -(s.end_time or 0)))


def named(spans: Iterable[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def assert_within(inner: ReadableSpan, outer: ReadableSpan) -> None:
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert inner.context.trace_id == outer.context.trace_id
    times = (outer.start_time, inner.start_time, inner.end_time, outer.end_time)
    assert list(times) == sorted(t for t in times if t is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers",
    [{"w1": ["up", "twice", "writer"]}, {"w1": ["up", "twice"], "w2": ["writer"]}],
    ids=["one worker", "two workers"],
)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])  # as a whole request, or aiohttp's
async def test_a_request_to_stages_has_a_span_for_each_that_waited_and_ran(
    tmp_path: Path,
    spans: CallSpans,
    exporter: InMemorySpanExporter,
    workers: dict[str, list[str]],
    version: str,
) -> None:
    async with stage_stack(tmp_path, SPEC, workers, Traced(spans)) as stages:
        data = request(
            b'{"question": "rest"}', path=URL, more=f"traceparent: {PARENT['traceparent']}"
        )
        async with connected(stages.stack) as peer:
            peer.send(data.replace(b"HTTP/1.1", version.encode(), 1))
            answer = await peer.answer()
        assert answer.body == {"text": "RESTREST"}
        found = await stage_spans(exporter, 10)
    assert len(found) == 10
    root = named(found, f"invoke {STAGED}")
    assert root.attributes is not None
    assert dict(root.attributes) == {
        "flowmesh.service": STAGED,
        "flowmesh.tenant": "team-a",
        "flowmesh.outcome": "ok",
        "flowmesh.request": answer.headers["x-flowmesh-request"],
    }
    assert f"{root.context.trace_id:032x}" == TRACE
    assert root.kind is SpanKind.SERVER
    begins = []
    for name, component in (("loud", "up"), ("double", "twice"), ("answer", "writer")):
        stage = named(found, f"stage {name}")
        assert stage.attributes is not None
        (worker,) = [w for w, components in workers.items() if component in components]
        assert dict(stage.attributes) == {
            "flowmesh.stage": name,
            "flowmesh.component": component,
            "flowmesh.worker": worker,
            "flowmesh.state": "ended",
        }
        assert_within(stage, root)
        below = [s for s in found if s.parent and s.parent.span_id == stage.context.span_id]
        assert sorted(s.name for s in below) == ["compute", "queue"]
        for one in below:
            assert_within(one, stage)
        begins.append(stage.start_time)
    assert begins == sorted(begins), "each begins after the one that it needs"
    texts = [str(value) for span in found for value in (span.attributes or {}).values()]
    assert not any("rest" in text.lower() for text in texts), "no word of a request"


@pytest.mark.slow
async def test_a_stage_that_has_not_ended_is_in_the_spans_of_a_cancelled_request(
    tmp_path: Path, spans: CallSpans, exporter: InMemorySpanExporter
) -> None:
    workers = {"w1": ["up", "twice", "writer"]}
    spec = {**SPEC, "stages": [*SPEC["stages"][:1], {**SPEC["stages"][2], "with": WAITS}]}
    spec["components"] = {n: c for n, c in SPEC["components"].items() if n != "twice"}
    workers = {"w1": ["up", "writer"]}
    async with stage_stack(tmp_path, spec, workers, Traced(spans)) as stages:
        asking = asyncio.create_task(stages.ask({"question": "wait"}))
        requests, hub = stages.stack.router._requests, stages.hubs["w1"]
        await until(lambda: any("answer" in r.times for r in hub._stages._requests.values()))
        (record,) = requests._in_flight.values()
        record.cancel()
        assert (await asking)[0] == 499
        found = await stage_spans(exporter, 5)
    root, ended, running = (
        named(found, name) for name in (f"invoke {STAGED}", "stage loud", "stage answer")
    )
    assert root.attributes is not None
    assert (root.attributes["flowmesh.outcome"], root.attributes["error.type"]) == (
        "cancelled",
        "cancelled",
    )
    for span, state in ((ended, "ended"), (running, "running")):
        assert span.attributes is not None
        assert span.attributes["flowmesh.state"] == state
        assert_within(span, root)
    assert running.end_time == root.end_time


async def test_a_hub_that_says_nothing_leaves_the_span_of_the_request_alone(
    tmp_path: Path, spans: CallSpans, exporter: InMemorySpanExporter
) -> None:
    listed = (entry_of(service_of(SPEC), chat=ChatFields("question", "text")),)
    loads = [
        ReplicaLoad(f"{STAGED}/{name}/r1/w", STAGED, (), 8, component=name)
        for name in SPEC["components"]
    ]
    async with (
        router_of(tmp_path, listed, spans) as stack,
        hand_hub(tmp_path, *loads, worker="w") as hub,
        stack.client as client,
    ):
        await until(lambda: stack.router._replicas.count(STAGED) == len(loads))
        asking = asyncio.create_task(
            client.chat.completions.create(model="ask", messages=says("hi"))
        )
        run = await hub._next(RunStages)
        assert run.timed
        hub.say(StageValue(run.request_id, 1, "reply", "answer", b'{"completion": "so"}'))
        await asking
        (span,) = await stage_spans(exporter, 1)
    assert (span.name, span.parent) == (f"chat {STAGED}", None)


WAITS = {"prompt": "{{ request.question }} {{ loud }}"}


class Traced(OneMachine):
    """One machine, with a router that sends spans."""

    def __init__(self, spans: CallSpans) -> None:
        self.spans = spans

    def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...]
    ) -> contextlib.AbstractAsyncContextManager[Stack]:
        return router_of(folder, listed, self.spans)


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

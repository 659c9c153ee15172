"""Traces of real runs, as a real OTLP/HTTP receiver takes them."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, workflow
from tests.flowmesh_control.metrics.test_exposition import BROKEN
from tests.flowmesh_control.test_end_to_end import DOUBLE, sleeps
from tests.flowmesh_control.waiting import until

from flowmesh_control.observability.otlp import wanted
from flowmesh_control.observability.spans import trace_of

pytestmark = pytest.mark.slow


class Receiver:
    """What a collector would take."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        data = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        self.requests.append(ExportTraceServiceRequest.FromString(data))
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    @property
    def spans(self) -> list[Span]:
        resources = [r for q in self.requests for r in q.resource_spans]
        return [s for r in resources for scope in r.scope_spans for s in scope.spans]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest.fixture
async def traced(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fabric]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    control = control_plane(tmp_path)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")  # workers are told nothing of it
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        fabric.close()
    await fabric.control.stop()


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes}


async def test_runs_steps_attempts_and_their_parts_arrive_as_one_trace_a_run(
    traced: Fabric, receiver: Receiver
) -> None:
    traced.worker("local-w1")
    uid = await traced.submit(workflow("double", DOUBLE))
    status = await traced.ended(uid)
    again = await traced.submit(workflow("double", DOUBLE))
    await traced.ended(again)
    wrong = await traced.submit(workflow("broken", BROKEN))
    await traced.ended(wrong)
    await traced.control.stop()
    mine = [s for s in receiver.spans if s.trace_id == trace_of(uid).to_bytes(16, "big")]
    names = sorted(s.name for s in mine)
    steps = ["step double", "step sum"]
    assert [n for n in names if n not in ("execute", "load")] == [
        *["attempt data.sql"] * 2,
        "run double",
        *steps,
    ]
    assert names.count("execute") == 2
    by_id = {s.span_id: s for s in mine}
    [root] = [s for s in mine if not s.parent_span_id]
    assert root.name == "run double"
    assert attributes(root)["flowmesh.workflow"] == "team-a/double"
    assert attributes(root)["flowmesh.paid_nanousd"] == status.paid_nanousd
    for span in mine:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span is root:
            continue
        parent = by_id[span.parent_span_id]
        over = {"e": "attempt", "l": "attempt", "a": "step", "s": "run"}[span.name[0]]
        assert parent.name.startswith(over)
        assert parent.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= parent.end_time_unix_nano
    # All hits: steps without attempts.
    hits = [s for s in receiver.spans if s.trace_id == trace_of(again).to_bytes(16, "big")]
    assert sorted(s.name for s in hits) == ["run double", *steps]
    assert {attributes(s).get("flowmesh.hits") for s in hits} == {None, 1}
    failed = [s for s in receiver.spans if s.trace_id == trace_of(wrong).to_bytes(16, "big")]
    bad = {s.name for s in failed if s.status.code == s.status.STATUS_CODE_ERROR}
    assert bad == {"run broken", "step double", "attempt data.sql"}
    assert "nothing_such" in next(s for s in failed if s.name == "step double").status.message


async def test_a_shared_attempt_is_in_every_trace_and_a_next_leader_repeats_nothing(
    traced: Fabric, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sleeps(0.2)["steps"]
    spec = {
        "steps": [*steps, {"name": "long", "uses": "test.sleep", "with": {"seconds": 1.5}}],
        "outputs": {"o": "long.metrics"},
    }
    first, second = [await traced.submit(workflow(n, spec)) for n in ("one", "two")]
    traced.worker("local-w1")
    state = machine_of(traced.control).state
    await until(lambda: state.book.executed == 1)
    port = int(traced.control.url.rpartition(":")[2])
    await traced.control.stop()
    assert receiver.spans
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    traced.control = control_plane(traced.root)
    await traced.control.start(port=port)
    for uid in (first, second):
        assert (await traced.ended(uid)).phase == "Succeeded"
    await traced.control.stop()
    for uid in (first, second):
        mine = [s for s in receiver.spans if s.trace_id == trace_of(uid).to_bytes(16, "big")]
        ids = [s.span_id for s in mine]
        assert len(ids) == len(set(ids))
        names = [s.name for s in mine]
        assert names.count("attempt test.sleep") == 2
        assert sorted(n for n in names if n.startswith(("run", "step"))) == [
            f"run {'one' if uid == first else 'two'}",
            "step long",
            "step s0",
        ]


async def test_without_an_endpoint_nothing_is_loaded_or_sent(fabric: Fabric) -> None:
    assert fabric.control._tracing is None
    assert not wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
    assert wanted({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"})

"""Latency targets at a router: very small ones, and measured times that are above them."""

from typing import Any

import pytest
from tests.flowmesh_serving.stack import MODEL, SERVICE
from tests.flowmesh_serving.stage_stack import SERVICE as STAGED
from tests.flowmesh_serving.stage_stack import entry_of, python, service_of

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.protocol.serving import ReplicaLoad
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.http.invoke_checks import InvokeChecks
from flowmesh_serving.http.openai import HttpLimits
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.service_admission import ServiceAdmission

SPEC: dict[str, Any] = {
    "components": {"only": python("def same(batch):\n    return batch", "same")},
    "stages": [{"name": "one", "component": "only", "inputs": {"q": "request.q"}}],
    "reply": {"out": "one"},
}


class Link:
    """A hub's, as far as admission looks at it."""

    worker = "w"


@pytest.mark.parametrize(
    ("slo_s", "slo_ms"), [(0.0, 0), (0.0003, 1), (0.0019, 2), (0.0023, 2), (0.57, 570), (1.1, 1100)]
)
def test_hubs_get_a_target_in_whole_milliseconds(slo_s: float, slo_ms: int) -> None:
    """``slo.scale`` may measure a target of less than one, which is still a target."""
    admission = ServiceAdmission(ReplicaTable(lambda *_: True), lambda _: {})
    checks = InvokeChecks(ServiceTable(), admission, HttpLimits(1, 1.0, 1.0), timed=False)
    caller = Caller(ServiceEntry(SERVICE, MODEL, slo_s=slo_s), "team-a")
    assert checks.run({}, caller, b"{}").slo_ms == slo_ms


def test_a_slow_batch_does_not_have_all_requests_refused_for_ever() -> None:
    """What no request measures again would stay."""
    replicas, in_flight = ReplicaTable(lambda *_: True), {"team-a": 1}
    slow = ReplicaLoad(
        f"{STAGED}/only/r1/w", STAGED, (), 8, component="only", sizes=(1,), seconds=(2.0,), cap=8
    )
    replicas.update(Link(), (slow,))  # type: ignore[arg-type]
    admission = ServiceAdmission(replicas, lambda _: in_flight)
    entry = entry_of(service_of(SPEC), slo_s=0.4, on_late="refuse")
    assert entry.graph is not None
    caller, graph = Caller(entry, "team-a"), LoadedGraph(entry.graph)
    with pytest.raises(OpenAiError, match="would come too late"):
        admission.check(caller, graph, entry.slo_s)
    in_flight.clear()
    admission.check(caller, graph, entry.slo_s)

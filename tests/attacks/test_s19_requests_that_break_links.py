"""Attacker: T2, a tenant that may create a service with stages, or call one.
Action: sends requests that are nested up to the limit of decoders, names items of lists by
    thousands of digits, and applies ever new versions of its service.
Must not happen: the hub loses its connection to the router, with the calls of all others, or grows.
"""

import logging
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flowmesh_serving.stack import TOKEN
from tests.flowmesh_serving.stage_stack import URL, StageStack, stage_stack

from flowmesh_core.protocol.serving import GRAPHS_MAX, UseGraph
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage
from flowmesh_serving.links.hub_link import HubLink, RefusedHubs
from flowmesh_worker.serving.router_link import RouterLink
from flowmesh_worker.serving.service_hub import ServiceHub

DIGITS = "9" * 5000


def engine(printed: str) -> dict[str, Any]:
    """Returns a service whose only stage prints a part of the request."""
    chat = {"messages": [{"role": "user", "content": printed}]}
    return {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {"llm": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}},
        "stages": [{"name": "answer", "component": "llm", "with": chat}],
        "reply": {"said": "answer.completion"},
    }


async def posted(stack: StageStack, body: bytes) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    url = f"{stack.stack.router.url}{URL}"
    async with stack.session.post(url, data=body, headers=headers) as response:
        await response.read()
        return response.status


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.slow
async def test_a_request_that_is_nested_to_the_limit_fails_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # the depth that decoders allow; libraries of other tests raise it
    try:
        await _nested_to_the_limit(tmp_path, caplog)
    finally:
        sys.setrecursionlimit(before)


async def _nested_to_the_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with stage_stack(tmp_path, engine("{{ request }}"), {"w1": ["llm"]}) as stack:
        statuses = set()
        for depth in range(860, 1000):
            statuses.add(await posted(stack, b'{"q":' + b"[" * depth + b"]" * depth + b"}"))
            assert not errors(caplog), depth
        assert statuses == {200, 400}
        assert await posted(stack, b'{"q":"x"}') == 200


@pytest.mark.slow
async def test_an_item_of_thousands_of_digits_fails_its_own_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = engine(f"{{{{ request.q.{DIGITS} }}}}")
    async with stage_stack(tmp_path, spec, {"w1": ["llm"]}) as stack:
        assert await posted(stack, b'{"q":[1]}') == 400
        assert await posted(stack, b'{"q":{"%s":"x"}}' % DIGITS.encode()) == 200
        assert not errors(caplog)


async def test_router_and_hub_keep_the_same_graphs_and_few() -> None:
    sent: list[ServiceGraph] = []
    hub = ServiceHub("w", print)
    router = HubLink(hub, RefusedHubs())  # type: ignore[arg-type]
    router.send = lambda message: sent.append(_graph(message))  # type: ignore[method-assign]
    link = RouterLink("router", print, hub._hello, hub)  # type: ignore[arg-type]
    known = LoadedGraph(_of(0))
    for number in range(3 * GRAPHS_MAX):
        for graph in (LoadedGraph(_of(number)), known):
            router.use_graph(graph)
            for each in sent:
                hub.receive(link, UseGraph(each))
            sent.clear()
            assert graph.digest in hub._stages._graphs[link]
    assert list(hub._stages._graphs[link]) == list(router._graphs)
    assert len(router._graphs) == GRAPHS_MAX
    hub.forget(link)
    assert not hub._stages._graphs
    hub.close()


def _of(number: int) -> ServiceGraph:
    return ServiceGraph((Stage(f"s{number}", "c", "/components/c"),), {"out": f"s{number}"})


def _graph(message: msgspec.Struct) -> ServiceGraph:
    assert isinstance(message, UseGraph)
    return message.graph

"""The stages of a service compile to a graph, with all problems at once and their places."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.request import CHAT
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.stages.service_graph import LoadedGraph

CATALOG = builtin_catalog()
CODE = "def best(batch):\n    return [{'text': c['question']} for c in batch]\n"
PYTHON = {"python": {"code": CODE, "function": "best"}}
ENGINE = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}
ANSWER = {
    "name": "answer",
    "component": "writer",
    "stream": True,
    "with": {
        "messages": [{"role": "user", "content": "{{ best.text }}\n{{ request.question }}"}],
        "maxTokens": 8,
    },
}
BEST = {
    "name": "best",
    "component": "rerank",
    "inputs": {"question": "request.question", "found": "hits"},
}
HITS = {"name": "hits", "component": "search", "inputs": {"question": "request.question"}}


def spec(**changes: Any) -> dict[str, Any]:
    """Returns example A: search, rank, write; its stages are in no order."""
    return {
        "inputs": {"base": {"model": "smollm2-135m-instruct"}},
        "components": {"search": PYTHON, "rerank": PYTHON, "writer": ENGINE},
        "stages": [ANSWER, BEST, HITS],
        "reply": {"text": "answer.completion", "best": "best.text"},
        **changes,
    }


def document(namespace: str = "team-a", **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": namespace},
        "spec": spec(**changes),
    }


def compiled(namespace: str = "team-a", **changes: Any) -> ServicePlan:
    service = FlowMeshService.model_validate(document(namespace, **changes))
    return compile_service(service, CATALOG, check_call=stage_problems)


def not_reported(keys: object, message: str) -> None:
    raise AssertionError(f"{keys}: {message}")


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        compiled(**changes)
    return {p.path.removeprefix("spec."): p.message for p in raised.value.problems}


def test_stages_are_ordered_and_each_knows_what_it_needs() -> None:
    graph = compile_stages(
        FlowMeshService.model_validate(document()).spec, not_reported, stage_problems
    )
    assert graph is not None
    loaded = LoadedGraph(graph)
    assert list(loaded.stages) == ["hits", "best", "answer"]
    assert loaded.stages["best"].needs == {"request", "hits"}
    assert loaded.stages["answer"].prints == {"best", "request"}
    assert (loaded.stages["answer"].stage.path, loaded.streamed) == (CHAT, "answer")
    assert loaded.stages["hits"].stage.path == "/components/search"
    assert loaded.consumers["best"] == ("answer", "reply")
    assert loaded.request_fields == ("question",)


def test_components_of_one_service_share_a_host_and_those_of_two_namespaces_never_do() -> None:
    params = {c.name: c.step.params for c in compiled().components}
    assert params["search"] == params["rerank"]
    assert [c["name"] for c in params["search"]["components"]] == ["rerank", "search"]
    own = {"search": PYTHON, "rerank": {**PYTHON, "ownHost": True}, "writer": ENGINE}
    apart = {c.name: c.step.params for c in compiled(components=own).components}
    assert apart["search"] != apart["rerank"]
    other = {c.name: c.step.params for c in compiled("team-b").components}
    assert other["search"] != params["search"]


def test_all_problems_of_stages_are_found_at_once() -> None:
    stages = [
        {"name": "request", "component": "search"},
        {**HITS, "inputs": {"question": "requst.question", "odd": "a b"}},
        {**BEST, "component": "reranker", "inputs": {"found": "answer.completon"}},
        {**ANSWER, "with": {"messages": [{"role": "user", "content": "{{ 1 + 1 }}"}], "n": 2}},
        {"name": "second", "component": "writer", "stream": True, "with": {"temperature": 3}},
    ]
    found = problems(stages=stages, reply={"text": "hit", "ok": "second.completion"})
    assert found == {
        "stages[0].name": "the name 'request' has another meaning: expected another one",
        "stages[1].inputs.question": "no stage 'requst'; did you mean 'request'?",
        "stages[1].inputs.odd": "'a b' is not a reference: expected request.FIELD, STAGE or"
        " STAGE.FIELD",
        "stages[2].component": "no component 'reranker'; did you mean 'rerank'?",
        "stages[2].inputs.found": "llm.generate has no output 'completon'; did you mean"
        " 'completion'?",
        "stages[3].with.messages": "'{{ 1 + 1 }}' is not a reference: expected"
        " {{ request.FIELD }} or {{ STAGE.FIELD }}",
        "stages[3].with.n": "'n' is not for a stage: its value is one answer",
        "stages[4].with": "expected messages or prompt, such as messages: [{role: user, content:"
        ' "{{ request.question }}"}]',
        "stages[4].stream": "'answer' streams already",
        "stages[3].stream": "stage 'best' reads its answer: only a last stage streams",
        "stages[1]": "nothing reads stage 'hits': name it in reply",
        "stages[2]": "nothing reads stage 'best': name it in reply",
        "components.rerank": "no stage calls component 'rerank'",
        "reply.text": "no stage 'hit'; did you mean 'hits'?",
    }


def test_stages_that_wait_for_each_other_are_named() -> None:
    hits = {**HITS, "inputs": {"question": "best.text"}}
    found = problems(stages=[ANSWER, BEST, hits])
    assert found == {"stages": "stages wait for each other: best -> hits -> best"}


def test_code_that_is_not_python_and_a_file_that_was_not_read_are_refused() -> None:
    wrong = {"python": {"code": "def best(:", "function": "best"}}
    unread = {"python": {"file": "./rerank.py"}}
    found = problems(components={"search": wrong, "rerank": unread, "writer": ENGINE})
    assert found["components.search.python.code"].startswith("not Python")
    assert "was not read" in found["components.rerank.python.file"]


def test_several_components_need_stages() -> None:
    found = problems(stages=[], reply={})
    assert found["components"].startswith("more than one component")
    assert found["components.search.python"].startswith("Python code answers stages only")


@pytest.mark.parametrize("component", [{}, {**PYTHON, **ENGINE}])
def test_a_component_is_an_engine_or_code(component: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give uses or python, one of them"):
        compiled(components={"search": component})

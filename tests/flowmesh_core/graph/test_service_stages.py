"""The stages of a service compile to a graph, with all problems at once and their places."""

from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.service_plan import ServicePlan, compile_service
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.request import CHAT, COMPLETIONS
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.serving.router_entry import router_entry
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
        "stages[0].name": "the name 'request' is reserved: expected another one",
        "stages[1].inputs.question": "no stage 'requst'; did you mean 'request'?",
        "stages[1].inputs.odd": "'a b' is not a reference: expected request.FIELD, STAGE or"
        " STAGE.FIELD",
        "stages[2].component": "no component 'reranker'; did you mean 'rerank'?",
        "stages[2].inputs.found": "llm.generate has no output 'completon'; did you mean"
        " 'completion'?",
        "stages[3].with.messages": "'{{ 1 + 1 }}' is not a reference: expected"
        " {{ request.FIELD }} or {{ STAGE.FIELD }}",
        "stages[3].with.n": "'n' is not allowed in a stage, whose value is one answer",
        "stages[4].with": "expected messages or prompt, such as messages: [{role: user, content:"
        ' "{{ request.question }}"}]',
        "stages[4].stream": "stage 'answer' streams already: expected one at most",
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


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "def best(calls):\n    return calls\n",
            "'bets' is not defined in it; did you mean 'best'?",
        ),
        ("class bets:\n    def compute(self, calls):\n        return calls\n", None),
        ("if True:\n    def bets(calls):\n        return calls\n", None),
        ("from somewhere import best as bets\n", None),
        ("import somewhere as bets\n", None),
        ("from somewhere import *\n", None),
        ("bets, others = lambda calls: calls, 1\n", None),
        ("globals()['bets'] = print\n", None),
        ("exec('def bets(calls): pass')\n", None),
    ],
)
def test_a_function_that_the_code_cannot_define_is_refused(code: str, problem: str | None) -> None:
    search = {"python": {"code": code, "function": "bets"}}
    components = {"search": search, "rerank": PYTHON, "writer": ENGINE}
    if problem is None:
        compiled(components=components)
    else:
        assert problems(components=components) == {"components.search.python.function": problem}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "class best:\n    def start(self, call): pass\n    def step(self, states): pass\n",
            "no finish",
        ),
        ("class best:\n    def compute(self, b): pass\n    def step(self, s): pass\n", "has both"),
        ("class best:\n    def run(self, b): pass\n", "neither compute nor step"),
        ("class best:\n    def step(self, s): pass\n    start = finish = print\n", ""),
        ("class best:\n    def compute(self, b):\n        step = 1\n        return b\n", ""),
        ("class best(list):\n    def step(self, s): pass\n", ""),
        ("@print\nclass best:\n    def step(self, s): pass\n", ""),
        ("class best:\n    pass\nbest.compute = print\n", ""),
        ("class best:\n    pass\nif True:\n    def best(b): return b\n", ""),
        ("def best(b):\n    return b\n", ""),
    ],
)
def test_a_class_that_cannot_be_a_component_is_refused(code: str, problem: str) -> None:
    search = {"python": {"code": code, "function": "best"}}
    components = {"search": search, "rerank": PYTHON, "writer": ENGINE}
    if not problem:
        compiled(components=components)
    else:
        (found,) = problems(components=components).items()
        assert found[0] == "components.search.python.function"
        assert problem in found[1]
        assert "expected" in found[1]


def test_several_components_need_stages() -> None:
    found = problems(stages=[], reply={})
    assert found["components"].startswith("more than one component")
    assert found["components.search.python"].startswith("a Python component serves only stages")


@pytest.mark.parametrize("component", [{}, {**PYTHON, **ENGINE}])
def test_a_component_is_an_engine_or_code(component: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give uses or python, one of them"):
        compiled(components={"search": component})


SEARCHED: dict[str, Any] = {
    "inputs": {
        "base": {"model": "smollm2-135m-instruct"},
        "vectors": {"dataset": "cas:dataset:" + "0" * 64 + "." + "0" * 34},
    },
    "components": {
        "embed": {"uses": "llm.embed", "inputs": {"model": "inputs.base"}},
        "search": {"uses": "retrieve.topk", "inputs": {"corpus": "inputs.vectors"}},
        "writer": ENGINE,
    },
}
QUERY = {"name": "query", "component": "embed", "with": {"text": "{{ request.question }}"}}
FOUND = {
    "name": "hits",
    "component": "search",
    "inputs": {"rows": "query"},
    "with": {"k": 3, "columns": ["text"]},
}
SAY = {"name": "answer", "component": "writer", "with": {"prompt": "{{ hits.found }}"}}


def searched(*stages: Any, **changes: Any) -> dict[str, str]:
    """Returns the problems of a service that embeds, searches and writes."""
    reply = {"text": "answer.completion"}
    return problems(**{**SEARCHED, "stages": list(stages), "reply": reply, **changes})


def test_embeddings_and_searches_are_stages_of_a_pooling_engine_and_a_loaded_corpus() -> None:
    plan = compiled(**SEARCHED, stages=[QUERY, FOUND, SAY], reply={"text": "answer.completion"})
    steps = {c.name: c.step for c in plan.components}
    assert steps["embed"].fields["implementation"] == "vllm"
    assert [(e.port, e.kind) for e in steps["search"].edges] == [("corpus", "dataset")]
    service = FlowMeshService.model_validate(
        document(**SEARCHED, stages=[QUERY, FOUND, SAY], reply={"text": "answer.completion"})
    )
    graph = compile_stages(service.spec, not_reported, stage_problems)
    assert graph is not None
    paths = {stage.name: stage.path for stage in graph.stages}
    assert paths == {"query": "/v1/embeddings", "hits": "/retrieve/topk", "answer": COMPLETIONS}


def test_what_a_stage_asks_of_an_engine_is_checked_with_its_place_and_a_remedy() -> None:
    wrong_query = {**QUERY, "with": {"txt": "x", "encodingFormat": "base64"}, "stream": True}
    wrong_hits = {**FOUND, "inputs": {"row": "query"}, "with": {"k": 0, "metric": "cosine"}}
    wrong_answer = {
        **SAY,
        "with": {"prompt": "{{ hits.rows }} {{ query.vector }}", "maxTokenz": 4, "max_tokens": 3},
    }
    assert searched(wrong_query, wrong_hits, wrong_answer) == {
        "stages[0].with.encodingFormat": "'encodingFormat' is not allowed in a stage, whose value"
        " is one answer",
        "stages[0].with.txt": "no parameter 'txt' of a stage; did you mean 'text'?",
        "stages[0].stream": "llm.embed does not stream: expected a stage of llm.generate",
        "stages[1].inputs.row": "retrieve.topk reads no input 'row' in a stage; did you mean"
        " 'rows'?",
        "stages[1].inputs": "retrieve.topk needs the input 'rows': a stage of llm.embed, such as"
        " rows: query",
        "stages[1].with.k": "Invalid 'k': integer below minimum value. Expected a value >= 1, but"
        " got 0 instead.",
        "stages[2].with.prompt": "llm.embed has no output 'vector'; there is embedding",
        "stages[2].with.maxTokenz": "no parameter 'maxTokenz' of a stage; did you mean"
        " 'maxTokens'?",
    }


def test_a_missing_text_and_a_wrong_type_are_named_as_the_stage_has_them() -> None:
    found = searched(
        {**QUERY, "with": {}},
        {**FOUND, "with": {"columns": "text"}},
        {**SAY, "with": {"prompt": "{{ hits.found }}", "maxTokens": "{{ request.n }}"}},
    )
    assert found["stages[0].with"].startswith("expected a text to embed, such as text:")
    assert found["stages[1].with.columns"] == (
        "Invalid type for 'columns': expected an array, but got a string instead."
        " A text with {{ }} stays a text."
    )
    assert found["stages[2].with.maxTokens"].startswith("Invalid type for 'maxTokens'")


def test_engines_that_answer_no_requests_are_refused() -> None:
    assert (
        "expected vllm"
        in searched(
            QUERY,
            FOUND,
            SAY,
            components={
                **SEARCHED["components"],
                "embed": {
                    "uses": "llm.embed",
                    "inputs": {"model": "inputs.base"},
                    "with": {"implementation": "transformers"},
                },
            },
        )["components.embed.with.implementation"]
    )
    alone = {"search": SEARCHED["components"]["search"]}
    found = problems(**{**SEARCHED, "components": alone, "stages": [], "reply": {}})
    assert found["components.search.uses"].startswith("retrieve.topk serves only stages")


def test_components_of_one_affinity_group_have_equal_numbers_of_replicas() -> None:
    components = {
        "search": {**PYTHON, "affinity": "docs", "replicas": {"min": 2, "max": 2}},
        "rerank": {**PYTHON, "affinity": "docs"},
        "writer": ENGINE,
    }
    found = problems(components=components)
    assert found == {
        "components.rerank.replicas": "1 to 1 replicas, and 'search' of affinity 'docs' has 2 to 2:"
        " expected the same, as a group is placed as one"
    }
    components["rerank"] = {**components["search"]}
    plan = compiled(components=components)
    assert [c.affinity for c in plan.components] == ["docs", "docs", ""]


def keyed(key: str, **more: Any) -> dict[str, Any]:
    """Returns the components, with a key of the first."""
    return {"search": {**PYTHON, "key": key, **more}, "rerank": PYTHON, "writer": ENGINE}


def test_a_router_has_the_key_of_each_component_that_has_one() -> None:
    components = keyed("request.user.id")
    graph = compiled(components=components).graph
    service = FlowMeshService.model_validate(document(components=components))
    entry = router_entry(service, graph)
    assert entry.keys == {"search": "request.user.id"}
    assert entry.graph is not None
    loaded = LoadedGraph(entry.graph, entry.keys)
    assert loaded.digest == LoadedGraph(entry.graph).digest, "hubs know no keys"
    assert loaded.request_fields == ("question",), "a request needs no field that is a key alone"
    one = loaded.keys_of({"user": {"id": 7}})
    assert list(one) == ["search"]
    assert one == loaded.keys_of({"user": {"id": 7, "name": "x"}, "question": "?"})
    for other in (8, "7", True, [7], {"a": 7}):
        assert loaded.keys_of({"user": {"id": other}}).keys() == one.keys()
        assert loaded.keys_of({"user": {"id": other}}) != one
    for missing in ({}, {"user": None}, {"user": {"id": None}}, {"user": "7"}):
        assert loaded.keys_of(missing) == {}


@pytest.mark.parametrize("key", ["question", "request", "best.text", "{{ request.question }}", "."])
def test_a_key_is_a_field_of_the_request(key: str) -> None:
    assert problems(components=keyed(key)) == {
        "components.search.key": f"{key!r} is not a field of the request: expected request.FIELD,"
        " such as request.user"
    }


def test_a_key_that_the_schema_of_requests_does_not_have_is_refused() -> None:
    schema = {"type": "object", "properties": {"question": {}, "user": {"type": "string"}}}
    found = problems(components=keyed("request.usr"), request={"schema": schema})
    assert found == {
        "components.search.key": "request.schema has no property 'usr'; did you mean 'user'?"
    }
    assert compiled(components=keyed("request.user"), request={"schema": schema})


def asking(field: str, **schema: Any) -> dict[str, Any]:
    """A service whose stage ``hits`` reads a field of a request with a question and a language."""
    return {
        "request": {"schema": {"properties": {"question": {}, "language": {}}, **schema}},
        "stages": [ANSWER, BEST, {**HITS, "inputs": {"text": f"request.{field}"}}],
    }


def test_a_field_of_the_request_that_looks_like_a_typo_is_refused_everywhere() -> None:
    typo = "request.schema has no property 'questoin'; did you mean 'question'?"
    assert problems(**asking("questoin")) == {"stages[2].inputs.text": typo}
    message = {"role": "user", "content": "{{ request.questoin }}"}
    answer = {**ANSWER, "with": {"messages": [message], "maxTokens": 8}}
    schema = {"schema": {"properties": {"question": {}}}}
    reply = {"text": "answer.completion", "best": "best.text", "asked": "request.questoin"}
    found = problems(stages=[answer, BEST, HITS], reply=reply, request=schema)
    assert found == {"stages[0].with.messages": typo, "reply.asked": typo}


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("question", {}),
        ("question.text", {}),
        ("user", {}),  # like no property, and the schema is open
        ("questoin", {"additionalProperties": True}),
        ("questoin", {"additionalProperties": {"type": "string"}}),
        ("questoin", {"patternProperties": {"^quest": {}}}),
        ("questoin", {"allOf": [{"properties": {"questoin": {}}}]}),
    ],
)
def test_a_field_that_a_request_may_have_is_read(field: str, schema: dict[str, Any]) -> None:
    assert compiled(**asking(field, **schema))


def test_a_field_that_a_closed_schema_does_not_have_is_refused() -> None:
    found = problems(**asking("user", additionalProperties=False))
    assert found["stages[2].inputs.text"].startswith("request.schema has no property 'user'")


def test_components_of_one_affinity_group_have_one_key() -> None:
    components = {
        **keyed("request.user", affinity="docs"),
        "rerank": {**PYTHON, "affinity": "docs"},
    }
    assert problems(components=components) == {
        "components.rerank.key": "none, and 'search' of affinity 'docs' has request.user: expected"
        " the same, as a group runs on one worker"
    }
    components["rerank"] = components["search"]
    assert compiled(components=components)


def test_a_service_without_stages_has_no_key() -> None:
    found = problems(components={"llm": {**ENGINE, "key": "request.user"}}, stages=[], reply={})
    assert found == {
        "components.llm.key": "a service without stages chooses a replica by the beginning of the"
        " prompt: leave key out, or add stages and a reply"
    }


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "it is of type 'array': expected 'object'"),
        ({"properties": {"q": {"type": "txt"}}}, "no type 'txt'"),
        ({"properties": {"q": {"pattern": "(?=x)"}}}, "RE2 has no look-ahead"),
        ({"properties": {"q": {"$ref": "https://x.y"}}}, "$ref must name a place in the schema"),
        ({"properties": {"q": {"minLength": "1"}}}, "the schema cannot be used"),
        ({"description": "x" * 70_000}, "bytes, of at most 65536"),
    ],
)
def test_a_schema_of_requests_that_cannot_be_checked_is_refused(
    schema: dict[str, Any], problem: str
) -> None:
    assert problem in problems(request={"schema": schema})["request.schema"]


def test_a_target_as_a_multiple_is_of_stages_and_excludes_a_latency() -> None:
    entry = router_entry(FlowMeshService.model_validate(document(slo={"scale": 3})), None)
    assert compiled(slo={"scale": 3})
    assert entry.slo_s == 0.0
    alone = {"components": {"writer": ENGINE}, "stages": [], "reply": {}}
    found = problems(slo={"scale": 3}, **alone)
    assert found["slo.scale"].startswith("scale needs stages: expected latency")
    for slo, problem in (
        ({"scale": 3, "latency": "4s"}, "give latency or scale, one of them"),
        ({"scale": 1}, "greater than or equal to 1.1"),
    ):
        with pytest.raises(ValueError, match=problem):
            FlowMeshService.model_validate(document(slo=slo))


def test_a_service_without_stages_has_no_schema_of_requests() -> None:
    found = problems(
        stages=[], reply={}, components={"writer": ENGINE}, request={"schema": {"type": "object"}}
    )
    assert "request.schema" in found

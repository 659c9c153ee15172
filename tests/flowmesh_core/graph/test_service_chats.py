"""A service with stages that is offered as a chat model says what is asked and what answers."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.test_service_stages import ANSWER, compiled, problems, spec

from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.protocol.router_services import ChatFields
from flowmesh_core.serving.router_entry import router_entry
from flowmesh_core.spec.service import FlowMeshService

CHAT = {"model": "ask-docs", "question": "request.question", "answer": "reply.text"}


def test_the_router_gets_the_fields_of_chats() -> None:
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "ask", "namespace": "team-a"},
        "spec": spec(openai=CHAT),
    }
    service = FlowMeshService.model_validate(document)
    graph = compile_stages(service.spec, lambda *_: None, stage_problems)
    entry = router_entry(service, graph)
    assert (entry.model, entry.chat) == ("ask-docs", ChatFields("question", "text"))
    assert compiled(openai=CHAT).model == "ask-docs"
    document["spec"]["openai"] = {"model": "ask-docs"}
    named = router_entry(FlowMeshService.model_validate(document), graph)
    assert (named.model, named.chat) == ("ask-docs", None)
    del document["spec"]["openai"]
    assert router_entry(FlowMeshService.model_validate(document), graph).chat is None


WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"question": ""},
        {
            "openai.question": "'' is not a field of the request: expected request.FIELD, such as"
            " request.question, which gets the last message of the user"
        },
    ),
    (
        {"answer": ""},
        {
            "openai.answer": "'' is not a field of the reply: expected reply.FIELD, such as"
            " reply.text"
        },
    ),
    ({"question": "request.a.b"}, {"openai.question": "is not a field of the request"}),
    ({"question": "best.text"}, {"openai.question": "is not a field of the request"}),
    ({"answer": "answer.completion"}, {"openai.answer": "is not a field of the reply"}),
    (
        {"answer": "reply.txt"},
        {"openai.answer": "the reply has no field 'txt'; did you mean 'text'?"},
    ),
    ({"question": "request.q"}, {"openai.question": "a chat has no request.question, which the"}),
]


@pytest.mark.parametrize(("changes", "wanted"), WRONG)
def test_what_is_wrong_with_a_chat_is_named(
    changes: dict[str, str], wanted: dict[str, str]
) -> None:
    found = problems(openai={**CHAT, **changes})
    assert found.keys() == wanted.keys()
    assert all(text in found[key] for key, text in wanted.items())


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"question": {"type": "integer"}}}, "is of type 'integer'"),
        ({"required": ["question", "user"]}, "a chat has no request.user"),
        ({"properties": {"question": {"type": ["string", "null"]}}}, ""),
        ({"required": ["question"], "properties": {"question": True}}, ""),
        ({}, ""),
    ],
)
def test_the_schema_of_requests_has_to_allow_chats(schema: dict[str, Any], problem: str) -> None:
    if not problem:
        assert compiled(openai=CHAT, request={"schema": schema})
        return
    assert problem in problems(openai=CHAT, request={"schema": schema})["openai.question"]


def test_a_question_that_the_schema_does_not_have_is_named_with_the_stages_that_read_it() -> None:
    schema = {"properties": {"ask": {}}}
    found = problems(openai=CHAT, request={"schema": schema})
    assert "request.schema has no property 'question'" in found["openai.question"]
    schema = {"properties": {"questions": {}}}
    found = problems(openai=CHAT, request={"schema": schema})
    assert {key.partition("[")[0] for key in found} == {"stages"}
    assert set(found.values()) == {
        "request.schema has no property 'question'; did you mean 'questions'?"
    }


def test_an_answer_is_a_text() -> None:
    found = problems(openai=CHAT, reply={"text": "answer", "best": "best.text"})
    assert found == {"openai.answer": "reply.text is answer, which is not a text"}
    assert compiled(openai={**CHAT, "answer": "reply.best"})


def test_a_service_without_stages_answers_chats_itself() -> None:
    changes = {"stages": [], "reply": {}, "components": {"writer": spec()["components"]["writer"]}}
    found = problems(openai=CHAT, **changes)
    assert found.keys() == {"openai.question", "openai.answer"}
    assert "answers chats itself" in found["openai.answer"]
    assert compiled(openai={"model": "x"}, **changes)


def test_a_chat_may_not_lack_what_a_stage_reads() -> None:
    answer = {**ANSWER, "with": {"prompt": "{{ best.text }} {{ request.user }}"}}
    found = problems(openai=CHAT, stages=[*spec()["stages"][1:], answer])
    assert found == {"openai.question": "a chat has no request.user, which the service needs"}


def test_a_service_without_question_and_answer_is_no_chat_model() -> None:
    assert compiled(openai={"model": "ask"}).model == "ask"

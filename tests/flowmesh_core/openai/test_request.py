"""The allow-list of OpenAI's parameters: what an engine is given, and how the rest is refused."""

from typing import Any

import pytest

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import CHAT, COMPLETIONS, EMBEDDINGS, check_request

HELLO = [{"role": "user", "content": "hello"}]
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(40):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "messages": HELLO, **changes}


def refused(path: str, body: Any) -> OpenAiError:
    with pytest.raises(OpenAiError) as e:
        check_request(path, body)
    return e.value


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FULL = chat(
    temperature=0.5,
    top_p=1,
    max_completion_tokens=5,
    n=8,
    stop=["a"],
    seed=-1,
    logprobs=True,
    top_logprobs=20,
    frequency_penalty=-2,
    presence_penalty=2.0,
    response_format={
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object"}},
    },
    tools=[TOOL],
    tool_choice={"type": "function", "function": {"name": "f"}},
    user="u",
    stream=True,
    stream_options={"include_usage": True},
)


def parameters(schema: Any) -> Any:
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


def nested(depth: int) -> Any:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"default": found}
    return found


def test_each_listed_parameter_is_accepted_and_passed_on_unchanged() -> None:
    checked = check_request(CHAT, FULL)
    assert (checked.path, checked.model, checked.body) == (CHAT, "m", FULL)
    assert checked.is_stream


def test_embeddings_of_some_texts_may_name_their_dimensions() -> None:
    body = {
        "model": "m",
        "input": ["a", "b"],
        "encoding_format": "base64",
        "dimensions": 8,
        "user": "u",
    }
    assert check_request(EMBEDDINGS, body).body == body
    for wrong in ({"dimensions": 0}, {"input": [1, 2]}, {"input": []}, {"truncate": True}):
        assert refused(EMBEDDINGS, body | wrong).param in (
            "dimensions",
            "input[0]",
            "input",
            "truncate",
        )


def test_parameters_that_are_null_are_left_out() -> None:
    checked = check_request(CHAT, chat(temperature=None, tools=None))
    assert checked.body == chat()
    assert not checked.is_stream


def test_a_whole_conversation_with_tools_is_accepted() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "be short"}]},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]
    assert check_request(CHAT, chat(messages=messages)).body["messages"] == messages


def test_completions_and_embeddings_have_lists_of_their_own() -> None:
    check_request(COMPLETIONS, {"model": "m", "prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2})
    check_request(EMBEDDINGS, {"model": "m", "input": ["a"], "encoding_format": "float"})
    assert refused(COMPLETIONS, {"model": "m", "prompt": "a", "messages": HELLO}).param == (
        "messages"
    )
    assert refused(EMBEDDINGS, {"model": "m", "input": "a", "temperature": 1}).param == (
        "temperature"
    )


@pytest.mark.parametrize(
    "name",
    [
        "chat_template",
        "chat_template_kwargs",
        "priority",
        "cache_salt",
        "request_id",
        "mm_processor_kwargs",
        "media_io_kwargs",
        "structured_outputs",
        "kv_transfer_params",
        "vllm_xargs",
        "use_beam_search",
        "add_special_tokens",
        "documents",
        "prompt_logprobs",
        "ignore_eos",
        "logit_bias",
    ],
)
def test_what_vllm_reads_beyond_openai_is_an_unknown_parameter(name: str) -> None:
    error = refused(CHAT, chat(**{name: "x"}))
    assert error.body() == {
        "error": {
            "message": f"Unknown parameter: '{name}'.",
            "type": "invalid_request_error",
            "param": name,
            "code": "unknown_parameter",
        }
    }
    assert error.status == 400


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"temperature": -1}, "temperature", "decimal_below_min_value"),
        ({"temperature": float("nan")}, "temperature", "decimal_above_max_value"),
        ({"temperature": "1"}, "temperature", "invalid_type"),
        ({"n": 9}, "n", "integer_above_max_value"),
        ({"n": True}, "n", "invalid_type"),
        ({"seed": 2**63}, "seed", "integer_above_max_value"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"stop": ["a"] * 5}, "stop", "array_above_max_length"),
        ({"stop": 3}, "stop", "invalid_type"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"tool_choice": "auto"}, "tool_choice", "invalid_value"),
        ({"stream_options": {}}, "stream_options", "invalid_value"),
        ({"messages": []}, "messages", "array_below_min_length"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"model": ""}, "model", "missing_required_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "root", "content": "a"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content", None),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://a"}}],
                    }
                ]
            },
            "messages[0].content[0].text",
            "missing_required_parameter",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type", "invalid_value"),
        ({"tools": [{**TOOL, "x": 1}]}, "tools[0].x", "unknown_parameter"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": DEEP}}]},
            "tools[0].function.parameters",
            None,
        ),
        ({"user": "x" * 2_000_000}, "body", "too_large"),
        ({"tools": [parameters({"maximum": 2**64})]}, "body", "invalid_value"),
        ({"tools": [parameters(nested(300))]}, "body", "invalid_value"),
    ],
)
def test_a_wrong_value_names_its_parameter_and_openais_code(
    changes: dict[str, Any], param: str, code: str | None
) -> None:
    error = refused(CHAT, chat(**changes))
    assert error.param == param
    assert code is None or error.code == code


def test_a_value_that_is_nested_as_deeply_as_json_is_read_is_refused() -> None:
    refused(CHAT, chat(tools=[parameters(nested(900))]))


def test_a_body_that_is_not_an_object_and_an_unknown_path_are_errors() -> None:
    assert refused(CHAT, [1]).code == "invalid_type"
    assert refused("/v1/images", {}).status == 404

"""Sampling and engine parameters at admission: implementations, names of other tools, ids."""

from dataclasses import replace
from typing import Any

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

from flowmesh_core.catalog.builtin.llm import GENERATE as CONTRACT
from flowmesh_core.identity import action_id, signature
from flowmesh_core.units import Digest

CHAT = {"messages": [{"role": "user", "content": "{{ question }}"}]}
D = Digest("0" * 64)


def step(**params: Any) -> dict[str, Any]:
    prompt = {} if "messages" in params else GENERATE["with"]
    return {**GENERATE, "with": {**prompt, **params}}


@pytest.mark.parametrize(
    "params",
    [
        {"repetitionPenalty": 1.3, "presencePenalty": -2, "frequencyPenalty": 2, "minTokens": 4},
        {"stopTokenIds": [2, 0], "badWords": ["a", "b c"], "includeStop": True, "ignoreEos": True},
        {"noRepeatNgram": 3, "implementation": "transformers"},
        {"noRepeatNgram": 0},
        {"minTokens": 4, "implementation": "transformers", "engine": {"maxModelLen": 128}},
        {"engine": {"quantization": "awq", "kvCacheDtype": "fp8", "maxModelLen": 4096}},
        {**CHAT, "chatTemplate": "{% for m in messages %}{{ m.content }}{% endfor %}"},
        {**CHAT, "chatTemplateArgs": {"enable_thinking": False}, "reasoning": "thoughts"},
    ],
)
def test_a_parameter_is_accepted_where_its_implementation_has_it(
    problems: Any, params: dict[str, Any]
) -> None:
    assert problems(step(**params), inputs=INPUTS) == {}


@pytest.mark.parametrize(
    ("params", "path", "message"),
    [
        (
            {"noRepeatNgram": 3},
            ".noRepeatNgram",
            "noRepeatNgram needs implementation: transformers",
        ),
        (
            {"jsonSchema": {"type": "object"}, "implementation": "transformers"},
            ".jsonSchema",
            "jsonSchema needs implementation: vllm",
        ),
        (
            {"engine": {"quantization": "awq"}, "implementation": "transformers"},
            ".engine.quantization",
            "engine.quantization needs implementation: vllm",
        ),
        (
            {"engine": {"quantization": "auto"}},
            ".engine.quantization",
            "leave quantization out to use the model's own",
        ),
        (
            {"engine": {"kvCacheDtype": "int4"}},
            ".engine.kvCacheDtype",
            "'int4' is not allowed; use one of fp8, fp8_e4m3, fp8_e5m2, bfloat16",
        ),
        (
            {"engine": {"maxModelLen": "many"}},
            ".engine.maxModelLen",
            "expected a number of tokens, got 'many'",
        ),
        (
            {"engine": {"max_model_len": 5}},
            ".engine.max_model_len",
            "max_model_len is written maxModelLen",
        ),
        (
            {"engine": {"trust_remote_code": True}},
            ".engine.trust_remote_code",
            "trust_remote_code is always off; convert the model",
        ),
        (
            {"engine": {"size": 5}},
            ".engine.size",
            "engine has no 'size'; there is quantization, kvCacheDtype, maxModelLen",
        ),
        ({"minTokens": 300}, ".minTokens", "minTokens is 300, more than maxTokens, which is 256"),
        ({"stopTokenIds": [-1]}, ".stopTokenIds[0]", "expected the number of a token, got -1"),
        ({"badWords": ["a", " "]}, ".badWords[1]", "expected a text, got ' '"),
        (
            {**CHAT, "chatTemplate": "{{ m"},
            ".chatTemplate",
            "not a template: unexpected end of template, expected 'end of print statement'."
            " (line 1 of it)",
        ),
        (
            {**CHAT, "chatTemplateArgs": {"messages": []}},
            ".chatTemplateArgs.messages",
            "messages is set already",
        ),
        ({"chatTemplate": "x"}, ".chatTemplate", "chatTemplate needs messages"),
        (
            {"reasoning": "thoughts", "jsonSchema": {"type": "object"}},
            ".reasoning",
            "with jsonSchema a completion is JSON from its start, so it has no reasoning; leave one"
            " of the two out",
        ),
        ({"repetitionPenalty": 0}, ".repetitionPenalty", "0.0 is less than the least allowed 0.01"),
    ],
)
def test_a_parameter_that_cannot_work_is_refused_before_anything_runs(
    problems: Any, params: dict[str, Any], path: str, message: str
) -> None:
    assert problems(step(**params), inputs=INPUTS) == {f"spec.steps[0].with{path}": message}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("top_p", "top_p is written topP"),
        ("max_tokens", "max_tokens is written maxTokens"),
        ("min_tokens", "min_tokens is written minTokens"),
        ("repetition_penalty", "repetition_penalty is written repetitionPenalty"),
        ("stop_token_ids", "stop_token_ids is written stopTokenIds"),
        ("bad_words", "bad_words is written badWords"),
        ("include_stop_str_in_output", "include_stop_str_in_output is written includeStop"),
        ("ignore_eos", "ignore_eos is written ignoreEos"),
        ("n", "n is written samples"),
        ("chat_template_kwargs", "chat_template_kwargs is written chatTemplateArgs"),
        ("quantization", "quantization is written engine.quantization"),
        ("max_model_len", "max_model_len is written engine.maxModelLen"),
        ("trust_remote_code", "trust_remote_code is always off; convert the model"),
        ("trustRemoteCode", "trust_remote_code is always off; convert the model"),
        ("logit_bias", "logit_bias is not offered; use badWords, or penalties"),
        ("grammar", "grammars are not offered; use jsonSchema"),
        ("rope_scaling", "set rope scaling in the model's config.json"),
        (
            "gpu_memory_utilization",
            "gpu_memory_utilization is not set by a step, since tenants share engines: the worker"
            " chooses it",
        ),
    ],
)
def test_a_name_of_another_tool_is_answered_with_ours(problems: Any, name: str, said: str) -> None:
    assert problems(step(**{name: 1}), inputs=INPUTS) == {
        f"spec.steps[0].with.{name}": f"llm.generate has no parameter {name!r}; {said}"
    }


def test_names_of_models_mean_nothing_to_other_engines(problems: Any) -> None:
    other = {"uses": "data.sql", "with": {"query": "select 1 as a", "trust_remote_code": True}}
    (found,) = problems(other).values()
    assert "always off" not in found


ADDED = [p for p in CONTRACT.params if p.added]
SET: dict[str, Any] = {
    "messagesFrom": "chat",
    "messagesFormat": "sharegpt",
    "transcript": "t",
    "repetitionPenalty": 1.1,
    "presencePenalty": 0.5,
    "frequencyPenalty": 0.5,
    "minTokens": 1,
    "stopTokenIds": [1],
    "badWords": ["x"],
    "includeStop": True,
    "ignoreEos": True,
    "noRepeatNgram": 2,
    "chatTemplate": "x",
    "chatTemplateArgs": {"a": 1},
    "reasoning": "r",
    "engine": {"maxModelLen": 64},
}


def test_ids_without_the_parameters_are_those_of_a_contract_without_them() -> None:
    before = replace(CONTRACT, params=tuple(p for p in CONTRACT.params if not p.added), minor=0)
    given = {"prompt": "x", "maxTokens": 3}
    names = [action_id(c, given, {}, {"rows": D}) for c in (before, CONTRACT)]
    assert names[0] == names[1]
    signatures = [signature(c, given, {}, {"model": D}, "") for c in (before, CONTRACT)]
    assert signatures[0] == signatures[1]


def test_each_parameter_enters_the_id_and_only_the_engines_settings_the_signature() -> None:
    assert SET.keys() == {p.name for p in ADDED}
    plain = {"prompt": "x"}
    ids = {action_id(CONTRACT, {**plain, n: v}, {}, {"rows": D}) for n, v in SET.items()}
    assert len(ids | {action_id(CONTRACT, plain, {}, {"rows": D})}) == len(SET) + 1
    batches = {
        n: signature(CONTRACT, {**plain, n: v}, {}, {"model": D}, "") for n, v in SET.items()
    }
    assert len(set(batches.values())) == 2
    assert [n for n, s in batches.items() if s == batches["engine"]] == ["engine"]

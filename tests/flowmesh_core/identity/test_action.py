from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.identity.engines import GENERATE, SQL

from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import action_id, digest_bytes, effective_params, signature

MODEL, ROWS, OTHER = (digest_bytes(x) for x in (b"model", b"rows", b"other"))
INPUTS = {"model": MODEL, "rows": ROWS}
FIELDS = {"dtype": "float32", "batchInvariant": True}


def name(with_: dict[str, Any], **changes: Any) -> str:
    given_args = {"fields": FIELDS, "inputs": INPUTS, "salt": ""} | changes
    contract = given_args.pop("contract", GENERATE)
    return action_id(contract, effective_params(contract, with_), **given_args)


BASE = {"prompt": "Q: {{ question }}", "temperature": 0.8}


def test_a_default_and_the_same_explicit_value_give_one_action() -> None:
    explicit = {**BASE, "samples": 1, "stop": [], "logprobs": False, "schema": None}
    assert name(explicit) == name(BASE)
    assert name(BASE, fields={**FIELDS, "tensorParallel": 1, "implementation": "vllm"}) == name(
        BASE
    )
    assert action_id(GENERATE, BASE, FIELDS, INPUTS) == name(BASE)


@given(st.permutations([*{**BASE, "samples": 4, "seed": 7}.items()]), st.booleans())
@settings(deadline=None)
def test_order_and_number_spelling_do_not_change_the_name(
    items: list[tuple[str, Any]], as_float: bool
) -> None:
    respelled = {k: float(v) if as_float and isinstance(v, int) else v for k, v in items}
    backwards = dict(reversed(INPUTS.items()))
    assert name(respelled, inputs=backwards) == name({**BASE, "samples": 4, "seed": 7})


@pytest.mark.parametrize(
    "changes",
    [
        {"contract": replace(GENERATE, version=2)},
        {"contract": replace(GENERATE, implementation=4)},
        {"contract": replace(GENERATE, name="llm.generate2")},
        {"fields": {**FIELDS, "dtype": "bfloat16"}},
        {"fields": {**FIELDS, "batchInvariant": False}},
        {"fields": {**FIELDS, "implementation": "transformers"}},
        {"fields": {**FIELDS, "tensorParallel": 2}},
        {"inputs": {**INPUTS, "rows": OTHER}},
        {"inputs": {"model": ROWS, "rows": MODEL}},
        {"inputs": {**INPUTS, "adapter": OTHER}},
        {"salt": "x"},
        {"ignored_inputs": ["rows"]},
    ],
    ids=str,
)
def test_every_field_that_affects_results_changes_the_name(changes: dict[str, Any]) -> None:
    assert name(BASE, **changes) != name(BASE)


@pytest.mark.parametrize(
    "with_",
    [{**BASE, "prompt": "Q"}, {**BASE, "seed": 1}, {**BASE, "stop": ["1"]}, {**BASE, "stop": [1]}],
    ids=str,
)
def test_another_parameter_is_another_action(with_: dict[str, Any]) -> None:
    names = {name(BASE), name(with_), name({**BASE, "stop": [1.5]})}
    assert len(names) == 3


def test_an_ignored_input_may_change_without_changing_the_name() -> None:
    changed = {**INPUTS, "rows": OTHER}
    assert name(BASE, ignored_inputs=["rows"]) == name(
        BASE, inputs=changed, ignored_inputs=["rows"]
    )
    with pytest.raises(IdentityError, match="no input 'rwos' is connected; use one of model, rows"):
        name(BASE, ignored_inputs=["rwos"])


def test_fields_that_do_not_affect_an_engine_are_not_part_of_its_names() -> None:
    query = {"query": "select 1"}
    assert name(query, contract=SQL, inputs={}) == name(
        query, contract=SQL, inputs={}, fields={"dtype": "bfloat16"}
    )


def batch(with_: dict[str, Any] = BASE, **changes: Any) -> str:
    args = {"fields": FIELDS, "components": {"model": MODEL}, "resource_class": "host"} | changes
    contract = args.pop("contract", GENERATE)
    return signature(contract, effective_params(contract, with_), **args)


@pytest.mark.parametrize(
    "changes",
    [
        {"with_": {"prompt": "another", "temperature": 0, "seed": 9, "maxTokens": 3}},
        {"components": {"model": MODEL, "adapter": OTHER}},
        {"components": {"model": MODEL, "rows": OTHER}},
    ],
    ids=["sampling and prompts", "a mixable adapter", "rows"],
)
def test_parameters_that_one_batch_can_mix_are_not_part_of_the_signature(
    changes: dict[str, Any],
) -> None:
    assert batch(**changes) == batch()


@pytest.mark.parametrize(
    "changes",
    [
        {"components": {"model": OTHER}},
        {"resource_class": "accelerator"},
        {"mixed": ["adapter"]},
        {"with_": {**BASE, "maxModelLen": 1024}},
        {"fields": {**FIELDS, "dtype": "bfloat16"}},
        {"fields": {**FIELDS, "batchInvariant": False}},
        {"contract": replace(GENERATE, implementation=4)},
    ],
    ids=str,
)
def test_parameters_that_one_batch_cannot_mix_are_part_of_the_signature(
    changes: dict[str, Any],
) -> None:
    assert batch(**changes) != batch()

"""Aliases of models from the environment."""

import pytest

from flowmesh_cli.local.model_aliases import VARIABLE, model_aliases
from flowmesh_core.errors import FlowMeshError


def test_aliases_are_read_from_the_environment() -> None:
    text = "gpt-4o-mini=smollm2-135m-instruct, big = hf://org/name@main"
    expected = {"gpt-4o-mini": "smollm2-135m-instruct", "big": "hf://org/name@main"}
    assert model_aliases({VARIABLE: text}) == expected
    assert model_aliases({}) == {}


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=b,c"])
def test_a_malformed_alias_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(FlowMeshError, match="expected alias=model"):
        model_aliases({VARIABLE: text})

"""Reads the names that a local control plane gives to models for OpenAI's API."""

from collections.abc import Mapping

from flowmesh_core.errors import FlowMeshError

VARIABLE = "FLOWMESH_MODEL_ALIASES"


def model_aliases(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns built-in names and addresses by alias.

    Raises:
        FlowMeshError: an entry is not ``alias=model``.
    """
    found = {}
    for entry in filter(None, environment.get(VARIABLE, "").split(",")):
        alias, equals, model = (part.strip() for part in entry.partition("="))
        if not alias or not equals or not model:
            raise FlowMeshError(
                f"{entry[:80]!r} is not an alias of a model: expected alias=model",
                where=VARIABLE,
                remedy="write gpt-4o-mini=smollm2-135m-instruct, several separated by commas",
            )
        found[alias] = model
    return found

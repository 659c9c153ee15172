"""Checks the settings of vLLM before a local fabric starts, whose workers would refuse them."""

from collections.abc import Mapping

from flowmesh_core.errors import FlowMeshError
from flowmesh_worker.llm_settings import VARIABLE, pool_llm_settings


def check_llm_settings(environment: Mapping[str, str]) -> None:
    """Raises a ``FlowMeshError`` where the variable has a setting that workers would refuse."""
    try:
        pool_llm_settings(environment)
    except ValueError as e:
        reason, _, remedy = str(e).removeprefix(f"{VARIABLE}: ").partition("; ")
        raise FlowMeshError(reason, where=VARIABLE, remedy=remedy) from e

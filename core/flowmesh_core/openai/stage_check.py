"""Checks what a stage of a service asks of an engine, when the service is applied.

Called through ``graph.service_stages``, with texts that are not filled in yet; a hub checks the
finished request again.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.graph.service_stages import CallProblem
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import check_request


def stage_problem(path: str, body: Mapping[str, Any]) -> CallProblem | None:
    """Returns what is wrong with a stage's request; None where it may be sent."""
    try:
        check_request(path, body)
    except OpenAiError as error:
        return CallProblem(error.param or "", error.message)
    return None

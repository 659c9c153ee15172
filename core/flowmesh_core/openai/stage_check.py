"""Checks what a stage of a service asks of an engine, when the service is applied.

Called through ``graph.engine_stages``, with texts that are not filled in yet; a hub checks the
finished request again.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.graph.engine_stages import NOT_IN_STAGES, CallProblem
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import EMBEDDINGS, check_request, parameter_names
from flowmesh_core.openai.topk_request import TOPK_PARAMETERS, check_topk
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.stage_calls import TOPK_PATH, engine_name, openai_body, stage_name

_MISSING, _TYPE = "missing_required_parameter", "invalid_type"
_NEEDS_TEXT = 'expected a text to embed, such as text: "{{ request.question }}"'
_NEEDS_CHAT = (
    "expected messages or prompt, such as"
    ' messages: [{role: user, content: "{{ request.question }}"}]'
)


def stage_problems(path: str, params: Mapping[str, Any]) -> list[CallProblem]:
    """Returns what is wrong with ``with`` of a stage; nothing where its calls may be sent.

    Args:
        path: what the engine host is asked for.
        params: the parameters, without those that no stage may have.
    """
    names = frozenset(TOPK_PARAMETERS) if path == TOPK_PATH else parameter_names(path)
    known = sorted(stage_name(path, name) for name in names - NOT_IN_STAGES)
    unknown = [name for name in params if engine_name(path, name) not in names]
    if unknown:
        return [
            CallProblem(name, f"no parameter {name!r} of a stage{did_you_mean(name, known)}")
            for name in unknown
        ]
    try:
        if path == TOPK_PATH:
            check_topk(params)
        else:
            check_request(path, openai_body(path, params, "model"))
    except OpenAiError as error:
        return [_problem(path, error)]
    return []


def _problem(path: str, error: OpenAiError) -> CallProblem:
    """Returns a problem in the names that the stage has."""
    theirs = error.param or ""
    if error.code == _MISSING and "." not in theirs:
        return CallProblem("", _NEEDS_TEXT if path == EMBEDDINGS else _NEEDS_CHAT)
    name = theirs.split(".")[0].split("[")[0]
    ours = stage_name(path, name) + theirs.removeprefix(name)
    message = error.message.replace(f"'{theirs}'", f"'{ours}'") if theirs else error.message
    if error.code == _TYPE and "got a string" in message:
        message += " A text with {{ }} stays a text."
    return CallProblem(ours, message)

"""Checks the stages of a service whose component is an engine.

Called by :mod:`service_stages`, which compiles all stages.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flowmesh_core.graph.compile_context import Keys
from flowmesh_core.spec.service import StageSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.stage_calls import STAGE_ENGINES, engine_name, stage_path

Report = Callable[[Keys, str], None]
NOT_IN_STAGES = frozenset(
    {"model", "n", "stream", "stream_options", "tools", "tool_choice", "encoding_format", "user"}
)
"""OpenAI's parameters that a stage does not have: its value is one answer, of its component."""


class CallProblem(NamedTuple):
    """What is wrong with ``with`` of a stage: the parameter (empty for none), and the message."""

    param: str
    message: str


CheckCall = Callable[[str, Mapping[str, Any]], Sequence[CallProblem]]
"""Returns what is wrong with ``with`` of a stage, given what its engine host is asked for."""


def check_engine_stage(
    uses: str, one: StageSpec, keys: Keys, report: Report, check_call: CheckCall
) -> str:
    """Checks a stage of an engine; returns what the engine host is asked for.

    Args:
        uses: the engine.
        one: the stage.
        keys: of the stage.
        report: called with every problem.
        check_call: checks what the stage asks.
    """
    path = stage_path(uses, one.with_)
    if uses not in STAGE_ENGINES:
        engines = ", ".join(name for name in STAGE_ENGINES if not name.startswith("test."))
        text = f"{uses} cannot serve a stage: expected {engines}, or a Python component"
        report((*keys, "component"), text)
        return path
    _check_inputs(uses, one, keys, report)
    refused = [name for name in one.with_ if engine_name(path, name) in NOT_IN_STAGES]
    for name in refused:
        report(
            (*keys, "with", name), f"{name!r} is not allowed in a stage, whose value is one answer"
        )
    asked = {name: value for name, value in one.with_.items() if name not in refused}
    for problem in check_call(path, asked):
        place = (*keys, "with", problem.param) if problem.param else (*keys, "with")
        report(place, problem.message)
    return path


def can_stream(uses: str) -> bool:
    """Returns whether an engine's answer can be sent as it is made."""
    engine = STAGE_ENGINES.get(uses)
    return engine is not None and engine.can_stream


def engine_fields(uses: str) -> tuple[str, ...]:
    """Returns the fields of a value of an engine's stage; none where they are not known."""
    engine = STAGE_ENGINES.get(uses)
    return () if engine is None else engine.fields


def _check_inputs(uses: str, one: StageSpec, keys: Keys, report: Report) -> None:
    wanted = STAGE_ENGINES[uses].inputs
    for name in one.inputs:
        if name not in wanted:
            text = f"{uses} reads no input {name!r} in a stage"
            other = (
                did_you_mean(name, wanted)
                if wanted
                else ": refer to values in the texts of `with`, as {{ STAGE.FIELD }}"
            )
            report((*keys, "inputs", name), f"{text}{other}")
    for name in wanted:
        if name not in one.inputs:
            text = f"{uses} needs the input {name!r}: a stage of llm.embed, such as {name}: query"
            report((*keys, "inputs"), text)

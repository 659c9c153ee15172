"""Which sources a step's inputs got, where some of them may be skipped; for ``fmesh why``."""

from collections.abc import Mapping

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.runs import StepStatus
from flowmesh_api.v1.why import WhyInput
from flowmesh_core.graph.plan import FIRST, SKIP, Edge, StepPlan, StepSource

NAMED_MAX = 20
"""Of an input with more sources only the first are named."""
_UPLOAD = "an input from outside"


def input_uses(step: StepPlan, steps: Mapping[str, StepStatus]) -> tuple[WhyInput, ...]:
    """Returns what is known of the inputs that do not need every source.

    Args:
        step: the step.
        steps: the run's steps as they are, by path.
    """
    return tuple(
        _use(edge, steps)
        for edge in step.edges
        if len(edge.sources) > 1 or edge.when_skipped != SKIP
    )


def _use(edge: Edge, steps: Mapping[str, StepStatus]) -> WhyInput:
    given: list[str] = []
    skipped: list[str] = []
    is_open = False
    for source in edge.sources:
        if not isinstance(source, StepSource):
            given.append(_UPLOAD)
        elif (parent := steps.get(source.step)) is None or parent.state != StepState.SKIPPED:
            done = parent is not None and parent.state == StepState.COMPLETED
            is_open = is_open or not done
            given += [f"{source.step}.{source.port}"] if done else []
        else:
            reason = f": {parent.reason}" if parent.reason else ""
            skipped.append(f"{source.step} was skipped{reason}")
        if edge.pick == FIRST and (given or is_open):
            break
    instead = edge.when_skipped if not given and not is_open and edge.when_skipped != SKIP else ""
    return WhyInput(edge.port, _few(given), _few(skipped), instead)


def _few(names: list[str]) -> tuple[str, ...]:
    more = len(names) - NAMED_MAX
    return (*names[:NAMED_MAX], *((f"{more} more",) if more > 0 else ()))

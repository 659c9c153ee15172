"""The model that a step's cost is counted under: the imported one that its model descends from."""

from flowmesh_api.v1.enums import StepState
from flowmesh_core.catalog.builtin_models import BUILTIN_PREFIX
from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.graph.plan import Edge, Source, StepPlan, StepSource
from flowmesh_core.machine.model import Run, StepRun

UPLOADED = "uploaded"
"""A model that came from a user's machine or by a reference: its digest is not a name."""
NAME_MAX = 64
_SKIPPED = StepState.SKIPPED
_CARRIERS = (PortKind.MODEL, PortKind.ADAPTER)


def base_model(run: Run, step: StepRun) -> str:
    """Returns the base model's short name, ``uploaded``, or "" for a step without a model.

    A trained model counts as the one that it was trained from, so that the number of names stays
    small.
    """
    if step.model is None:
        step.model = _of(run, step.plan)
    return step.model


def _of(run: Run, plan: StepPlan) -> str:
    if plan.engine == "model.import":
        return _short(str(plan.params.get("uri", "")))
    for kind in _CARRIERS:
        for edge in plan.edges:
            if edge.kind == kind:
                source = _used(run, edge)
                if not isinstance(source, StepSource):
                    return UPLOADED
                return base_model(run, run.steps[source.step]) or UPLOADED
    return ""


def _used(run: Run, edge: Edge) -> Source:
    """The first source that was not skipped."""
    for source in edge.sources:
        if not isinstance(source, StepSource) or run.steps[source.step].state is not _SKIPPED:
            return source
    return edge.sources[0]


def _short(uri: str) -> str:
    """``hf://org/name@rev`` → ``name``; ``builtin:name`` → ``name``."""
    path = uri.removeprefix(BUILTIN_PREFIX).partition("?")[0].rstrip("/")
    return path.rpartition("/")[2].partition("@")[0][:NAME_MAX] or UPLOADED

"""Detects runs whose status is too large for their object."""

from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.spec.status import MOST_ROWS


def overflows(run: RunStatus) -> bool:
    """Whether steps or outputs are left out, or an output has parts, which a status does not list.

    The whole status of such a run is a document in the store once it has ended.
    """
    joined = any(o is not None and "parts" in o for o in run.outputs.values())
    return len(run.steps) > MOST_ROWS or len(run.outputs) > MOST_ROWS or joined

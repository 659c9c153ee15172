"""The measured time of a request alone, of which ``slo.scale`` makes a latency target.

Called by ``serving_plan``. Source of targets as multiples: NeuStream (Yuan et al.), whose partial
SLOs are a scale times the time of a batch of one.
"""

from collections.abc import Mapping

from flowmesh_core.serving.plan.stage_paths import slowest_paths
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_core.stages.stage_timing import STEADY


def unloaded_request_s(
    graph: LoadedGraph, alone_s: Mapping[str, float], before_s: float = 0.0
) -> float:
    """Returns the time of a request alone, along the slowest path, to three digits.

    Measured times move a little with each batch, and that of an engine is not known while it has no
    calls. So the value of the last plan stays until the time is another by more than a tenth.

    Args:
        graph: of the service.
        alone_s: by component, the time of a call alone; 0 where it is not known.
        before_s: of the last plan; 0 for none.

    Returns:
        Seconds; 0 before all components were measured.
    """
    if not all(alone_s[s.stage.component] for s in graph.stages.values()):
        return before_s
    paths = slowest_paths(graph, alone_s)
    found_s = max(sum(alone_s[c] * visits for c, visits in p.visits.items()) for p in paths)
    if before_s and abs(found_s - before_s) <= STEADY * max(found_s, before_s):
        return before_s
    return float(f"{found_s:.3g}")

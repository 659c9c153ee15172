"""How long a request to a service with stages would take now, by the measured batch profiles."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.service_graph import LoadedGraph


class MeasuredReplica(msgspec.Struct, frozen=True):
    """A replica of a Python component, as its hub reported it.

    Attributes:
        calls: that run or wait there.
        cap: the largest batch that it forms.
    """

    profile: BatchProfile
    cap: int
    calls: int = 0

    @property
    def reply_in_s(self) -> float:
        """When a call that comes now has its result: after the batches before it, and its own."""
        batches = math.ceil((self.calls + 1) / self.cap)
        last = (self.calls + 1) - (batches - 1) * self.cap
        return (batches - 1) * self.profile.at(self.cap) + self.profile.at(last)


def predicted_s(graph: LoadedGraph, measured: Mapping[str, Sequence[MeasuredReplica]]) -> float:
    """Returns the time to a reply along the slowest path.

    Args:
        graph: of the service.
        measured: the replicas of each component; one that was not measured, such as an engine,
            counts as nothing, so the prediction is a lower bound.
    """
    ends: dict[str, float] = {}
    for name, stage in graph.stages.items():
        replicas = measured.get(stage.stage.component, ())
        own = min((r.reply_in_s for r in replicas), default=0.0)
        ends[name] = own + max((ends[s] for s in stage.needs if s in ends), default=0.0)
    return max((ends[s] for s in graph.reply_needs), default=0.0)

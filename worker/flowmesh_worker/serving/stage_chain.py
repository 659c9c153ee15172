"""Stages that one host runs one after the other without the hub between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flowmesh_core.protocol.serving import CallEnded, ComponentCall
from flowmesh_worker.serving.instance_link import HostCall
from flowmesh_worker.serving.stage_plans import StagePlan


@dataclass(slots=True, eq=False)
class StageChain:
    """One call of a host: a stage, and those that only need its value and are in the same host.

    Attributes:
        stages: in order, at least one.
        calls: of each.
    """

    stages: Sequence[StagePlan]
    calls: Sequence[HostCall]

    @property
    def call(self) -> HostCall:
        """What the host is sent."""
        first = self.calls[0]
        if len(self.calls) == 1 or not isinstance(first, ComponentCall):
            return first
        return msgspec.structs.replace(first, then=tuple(self.calls[1:]))

    @property
    def keys(self) -> list[str]:
        """The names under which the host keeps values."""
        calls = (call for call in self.calls if isinstance(call, ComponentCall))
        return [call.store_as for call in calls if call.store_as]

    def ended_at(self, ended: CallEnded) -> str:
        """Returns the stage that ended the chain."""
        return self.stages[min(max(0, ended.step), len(self.stages) - 1)].name

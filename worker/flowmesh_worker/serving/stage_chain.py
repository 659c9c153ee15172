"""Stages that one host runs one after the other without the hub between them."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from flowmesh_core.protocol.serving import CallEnded, ComponentCall
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.serving.instance_link import HostCall


@dataclass(frozen=True, slots=True)
class StageChain:
    """One call of a host: a stage, and those that only need its value and are in the same host.

    Attributes:
        stages: in order, at least one.
        calls: of each.
        passed: values that the first call names.
    """

    stages: tuple[str, ...]
    calls: tuple[HostCall, ...]
    passed: Mapping[str, StageBytes]

    @property
    def call(self) -> HostCall:
        """What the host is sent."""
        first = self.calls[0]
        if not isinstance(first, ComponentCall):
            return first
        return msgspec.structs.replace(first, then=self.calls[1:])

    @property
    def keys(self) -> list[str]:
        """The names under which the host keeps values."""
        calls = (call for call in self.calls if isinstance(call, ComponentCall))
        return [call.store_as for call in calls if call.store_as]

    def ended_at(self, ended: CallEnded) -> str:
        """Returns the stage that ended the chain."""
        return self.stages[min(max(0, ended.step), len(self.stages) - 1)]


def goes_on(call: HostCall) -> bool:
    """Returns whether only components of its host need the value of a call."""
    return (
        isinstance(call, ComponentCall)
        and bool(call.store_as)
        and not call.wants_body
        and not call.wants_value
    )

"""Counts the bytes of values between stages, by router and by how they passed.

Tiers: ``reference`` counts values that stay in one host, ``inline`` bytes inside a message and
``shared`` bytes in shared memory between hosts of one worker, ``peer`` bytes to another hub, and
``relay`` bytes that pass the router.
"""

from collections.abc import Mapping

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_worker.ipc.passed_values import StageBytes, size_of
from flowmesh_worker.ipc.shared_value import SharedValue
from flowmesh_worker.serving.instance_link import HostCall
from flowmesh_worker.serving.router_link import RouterLink

REFERENCE, INLINE, SHARED, PEER, RELAY = "reference", "inline", "shared", "peer", "relay"


class PassedBytes:
    """What the stages of one hub have passed on since the last report."""

    def __init__(self) -> None:
        self._counts: dict[RouterLink, dict[str, int]] = {}

    def count(self, link: RouterLink, tier: str, amount: int) -> None:
        """Adds to a tier of a router's requests."""
        if amount:
            counts = self._counts.get(link)
            if counts is None:
                counts = self._counts[link] = {}
            counts[tier] = counts.get(tier, 0) + amount

    def count_inputs(
        self, link: RouterLink, call: HostCall, passed: Mapping[str, StageBytes]
    ) -> None:
        """Adds the inputs of a call."""
        if passed:
            shared = sum(v.size for v in passed.values() if isinstance(v, SharedValue))
            self.count(link, SHARED, shared)
            self.count(link, INLINE, sum(map(size_of, passed.values())) - shared)
        self.count(link, INLINE, len(call.body))
        if isinstance(call, ComponentCall):
            self.count(link, REFERENCE, len(call.stored))

    def take(self, link: RouterLink) -> dict[str, int]:
        """Returns the bytes by tier since the last time."""
        return self._counts.pop(link, {})

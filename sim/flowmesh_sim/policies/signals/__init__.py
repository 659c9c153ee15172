"""What decides how many workers simulated pools have: the shipped autoscaling and the baselines."""

from collections.abc import Callable

from flowmesh_sim.policies.signals.frozen import FrozenSignal
from flowmesh_sim.policies.signals.horizontal_pod_autoscaler import HpaSignal
from flowmesh_sim.policies.signals.shipped_signal import ShippedSignal
from flowmesh_sim.policies.signals.signal import ScaledPool, Signal, SignalDecision, WantedSize

SIGNALS: dict[str, Callable[[], Signal]] = {
    "shipped": ShippedSignal,
    "frozen": FrozenSignal,
    "hpa": HpaSignal,
}

__all__ = ["SIGNALS", "ScaledPool", "Signal", "SignalDecision", "WantedSize"]

"""The autoscaling that shipped on 27 November 2026 (commit ee3d385a), frozen.

Baselines are scaled by it, so that a later signal that is better does not lift them too. It is a
copy of ``flowmesh_core.autoscaling`` and of ``machine.prewarm.forecast_demand`` without what no
simulated load of the placement evaluation has: services, spot workers, reserved pools, quotas of
user code, and pools with fewer ``machines`` than their maximum, which a scenario with this signal
may not have. What it reads is live: the snapshot, the cost model's predictions, hard constraints,
the capacity of engines, and the arrivals that the machine counts (``State.demand``).

It is not to be improved, only kept working where what it reads has changed. ADRs 16, 17, 20 and 22
explain its rules.
"""

from flowmesh_sim.policies.signals.frozen.frozen_signal import FrozenSignal

__all__ = ["FrozenSignal"]

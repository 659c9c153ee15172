"""The baselines of the placement evaluation, each as what it changes in a scenario.

docs/simulator.md describes them. All have the pools of the scenario that they are given, so that a
comparison with the shipped policy is between policies and not between fleets. The evaluation of
the paper has inelastic baselines of its own in ``paper/plan.yaml``.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.suggestions import did_you_mean

KEEP_ALIVES_S = (30.0, 60.0, 120.0, 300.0, 600.0)
"""Idle seconds before a worker is released that the evaluation compares."""
ALWAYS_ON = "always-on"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline.

    Attributes:
        title: for tables.
        policy: a key of ``POLICIES``, with its ``options``.
        sharing: of results: ``never``, or among ``all``.
        replicas: whether slow attempts are started a second time, as the shipped control plane
            does.
        is_elastic: whether its pools begin empty, and grow and shrink.
    """

    title: str
    policy: str
    sharing: str
    options: Mapping[str, float] = field(default_factory=dict)
    replicas: bool = False
    is_elastic: bool = True


SHARES = {"large": 0.66, "middle": 0.31, "small": 0.03}
"""Of group A's work, by the size of the model: device-seconds alone on an H100, as in the paper's
evaluation. Trainings have no workers of their own: they run on any that is free."""
BASELINES: dict[str, Baseline] = {
    "shipped": Baseline("FlowMesh", "shipped", "all", replicas=True),
    "fifo": Baseline("FIFO without sharing", "fifo", "never"),
    "fifo-sharing": Baseline("FIFO with sharing", "fifo", "all"),
    "static-routing": Baseline("static routing", "static-routing", "all", SHARES),
    "random-placement": Baseline("random placement", "random-placement", "all", replicas=True),
    "halo": Baseline("Halo's order", "halo", "all"),
    "helium": Baseline("Helium's order", "helium", "all"),
    ALWAYS_ON: Baseline("always on", "shipped", "all", replicas=True, is_elastic=False),
}
"""By name: what the shipped policy is compared with, and the shipped policy itself."""


def with_baseline(
    document: Mapping[str, Any],
    name: str,
    *,
    signal: str,
    keep_alive_s: float = 300.0,
) -> dict[str, Any]:
    """Returns a scenario, as plain values, with a baseline in place of its policy.

    Args:
        document: the scenario. A pool may have as many workers as its ``maximum`` (without one,
            its ``workers``), rented throughout by an inelastic baseline; its device, price, start
            and disk stay.
        name: a key of ``BASELINES``.
        signal: a key of ``SIGNALS``, which scales the pools of an elastic baseline.
        keep_alive_s: how long its workers stay once they are no longer needed; of ``hpa`` the
            stabilization window.

    Raises:
        FlowMeshError: the name is unknown.
    """
    if name not in BASELINES:
        raise FlowMeshError(f"no baseline {name!r}{did_you_mean(name, BASELINES)}")
    baseline = BASELINES[name]
    changed = deepcopy(dict(document))
    changed["pools"] = [_pool(p, baseline, keep_alive_s) for p in changed["pools"]]
    changed["policy"], changed["policyOptions"] = baseline.policy, dict(baseline.options)
    changed["sharing"] = baseline.sharing
    changed["control"] = {**changed.get("control", {}), "replicas": baseline.replicas}
    if baseline.is_elastic:
        changed["signal"] = signal
    return changed


def _pool(pool: Mapping[str, Any], baseline: Baseline, keep_alive_s: float) -> dict[str, Any]:
    most = pool.get("maximum") or pool.get("workers", 1)
    if not baseline.is_elastic:
        return {**pool, "workers": most, "minimum": most, "maximum": most, "autoscale": False}
    return {
        **pool,
        "workers": 0,
        "minimum": 0,
        "maximum": most,
        "autoscale": True,
        "stabilizationS": keep_alive_s,
    }

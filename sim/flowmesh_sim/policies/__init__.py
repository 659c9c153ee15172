"""Scheduling policies: the shipped scheduler and the baselines, one file for each.

Each file, and docs/evaluation.md, describe the baseline and why the comparison is fair.
"""

from collections.abc import Callable, Mapping

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_sim.policies.fifo import Fifo
from flowmesh_sim.policies.halo import Halo
from flowmesh_sim.policies.helium import Helium
from flowmesh_sim.policies.monolithic import Monolithic
from flowmesh_sim.policies.policy import Policy
from flowmesh_sim.policies.random_placement import RandomPlacement
from flowmesh_sim.policies.round_robin import RoundRobin
from flowmesh_sim.policies.shipped import Shipped
from flowmesh_sim.policies.static_routing import StaticRouting
from flowmesh_sim.policies.unbatched import Unbatched

POLICIES: dict[str, Callable[..., Policy]] = {
    "shipped": Shipped,
    "fifo": Fifo,
    "monolithic": Monolithic,
    "static-routing": StaticRouting,
    "round-robin": RoundRobin,
    "random-placement": RandomPlacement,
    "unbatched": Unbatched,
    "halo": Halo,
    "helium": Helium,
}

__all__ = ["POLICIES", "Policy", "policy_named"]


def policy_named(name: str, options: Mapping[str, float] | None = None) -> Policy:
    """Creates a policy by its name.

    Args:
        name: a key of ``POLICIES``.
        options: arguments of its constructor; only ``static-routing`` has any.

    Raises:
        FlowMeshError: the name or an option is unknown.
    """
    if name not in POLICIES:
        raise FlowMeshError(f"no policy {name!r}{did_you_mean(name, POLICIES)}", where="policy")
    try:
        return POLICIES[name](**(options or {}))
    except TypeError as e:
        raise FlowMeshError(f"policy {name}: {e}", where="policyOptions") from e

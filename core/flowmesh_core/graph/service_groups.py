"""Checks the affinity groups of a service: their components are replicated together."""

from flowmesh_core.graph.engine_stages import Report
from flowmesh_core.spec.service import ComponentSpec, ServiceSpec


def replica_bounds(spec: ComponentSpec) -> tuple[int, int]:
    """Returns the least and the most replicas of a component."""
    least = max(1, spec.replicas.min)
    return least, max(least, spec.replicas.max)


def check_affinity(spec: ServiceSpec, report: Report) -> None:
    """Reports components of one group that have other numbers of replicas than the first."""
    first: dict[str, tuple[str, tuple[int, int]]] = {}
    for name, component in spec.components.items():
        if component.affinity is None:
            continue
        bounds = replica_bounds(component)
        other, wanted = first.setdefault(component.affinity, (name, bounds))
        if bounds != wanted:
            report(
                ("spec", "components", name, "replicas"),
                f"{bounds[0]} to {bounds[1]} replicas, and {other!r} of affinity"
                f" {component.affinity!r} has {wanted[0]} to {wanted[1]}: expected the same, as a"
                " group is placed as one",
            )

"""Checks the keys of a service's components: the fields of a request that choose their replicas."""

from flowmesh_core.graph.engine_stages import Report
from flowmesh_core.spec.service import ServiceSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.values import REQUEST, parse_reference


def check_keys(spec: ServiceSpec, report: Report) -> None:
    """Reports keys that are no field of a request, and groups whose components have several."""
    first: dict[str, tuple[str, str]] = {}
    for name, component in spec.components.items():
        keys = ("spec", "components", name, "key")
        if component.key and (problem := _problem_of(component.key, spec)):
            report(keys, problem)
        if component.affinity is None:
            continue
        other, wanted = first.setdefault(component.affinity, (name, component.key))
        if component.key != wanted:
            report(
                keys,
                f"{component.key or 'none'}, and {other!r} of affinity {component.affinity!r} has"
                f" {wanted or 'none'}: expected the same, as a group runs on one worker",
            )


def refuse_keys(spec: ServiceSpec, report: Report) -> None:
    """Reports keys of a service without stages."""
    for name, component in spec.components.items():
        if component.key:
            report(
                ("spec", "components", name, "key"),
                "a service without stages chooses a replica by the beginning of the prompt: leave"
                " key out, or add stages and a reply",
            )


def _problem_of(key: str, spec: ServiceSpec) -> str:
    reference = parse_reference(key)
    if reference is None or reference.source != REQUEST or not reference.path:
        return (
            f"{key!r} is not a field of the request: expected request.FIELD, such as request.user"
        )
    known = spec.request.schema_.get("properties")
    field = reference.path[0]
    if isinstance(known, dict) and field not in known:
        hint = did_you_mean(field, known)
        return f"request.schema has no property {field!r}{hint or ': add it, or name another'}"
    return ""

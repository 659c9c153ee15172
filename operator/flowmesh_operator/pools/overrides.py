"""Lays a pool's ``podTemplate`` over the template that the operator builds, as kubectl would.

Mappings are merged; lists whose items have a key of their own (names, mount paths) by that key; the
terms of a required node affinity are met besides the operator's. What a pool may say at all is
bounded by its model (``flowmesh_core.spec.pool_template``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.spec.pool_template import PodTemplate

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = "nodeSelectorTerms"

Json = dict[str, Any]


def overlaid(template: Json, over: PodTemplate) -> Json:
    """The pod template with the pool's own on top; neither argument is changed."""
    metadata, spec = template["metadata"], template["spec"]
    given: Json = over.spec.model_dump(by_alias=True, exclude_unset=True, mode="json")
    containers = given.pop("containers", [])
    groups = given.pop("supplementalGroups", [])
    merged = {**spec, **{k: v for k, v in given.items() if k not in {"affinity", "volumes"}}}
    merged["volumes"] = by_key(spec["volumes"], given.get("volumes", []), "name")
    if affinity := affinity_with(given.get("affinity") or {}, spec.get("affinity") or {}):
        merged["affinity"] = affinity
    if groups:
        merged["securityContext"] = {**spec["securityContext"], "supplementalGroups": groups}
    (worker,) = spec["containers"]
    for container in containers:
        worker = _container(worker, container)
    merged["containers"] = [worker]
    labels, annotations = over.metadata.labels, over.metadata.annotations
    return {
        "metadata": {
            **metadata,
            # The operator's own labels last: selectors hold on to them.
            "labels": {**labels, **metadata["labels"]},
            "annotations": {**annotations, **metadata.get("annotations", {})},
        },
        "spec": merged,
    }


def _container(worker: Json, over: Json) -> Json:
    merged = dict(worker)
    merged["env"] = by_key(worker["env"], over.get("env", []), "name")
    merged["envFrom"] = [*worker.get("envFrom", []), *over.get("envFrom", [])]
    merged["volumeMounts"] = by_key(
        worker["volumeMounts"], over.get("volumeMounts", []), "mountPath"
    )
    if over.get("resources"):
        merged["resources"] = over["resources"]
    return merged


def by_key(items: Sequence[Json], over: Sequence[Json], key: str) -> list[Json]:
    """Two lists merged by a field of their items; what the second says of an item holds."""
    given = {item.get(key): item for item in over}
    kept = [given.pop(item[key], item) for item in items]
    return [*kept, *(item for item in over if item.get(key) in given)]


def affinity_with(affinity: Mapping[str, Any], needed: Mapping[str, Any]) -> Json:
    """An affinity that asks for what is needed of nodes in each of its own terms too.

    Args:
        affinity: the pool's.
        needed: the operator's: at most a required node affinity of one term.
    """
    node = dict(affinity.get("nodeAffinity") or {})
    terms = (needed.get("nodeAffinity") or {}).get(_REQUIRED, {}).get(_TERMS, [])
    if not terms:
        return dict(affinity)
    asked = terms[0]["matchExpressions"]
    own = (node.get(_REQUIRED) or {}).get(_TERMS) or [{}]
    node[_REQUIRED] = {
        _TERMS: [
            {**term, "matchExpressions": [*asked, *term.get("matchExpressions", [])]}
            for term in own
        ]
    }
    return {**affinity, "nodeAffinity": node}

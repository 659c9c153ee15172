"""Merges a pool's ``podTemplate`` into the operator's pod template, as a strategic merge would.

Mappings are merged; lists are merged by the key of their items (name, mount path); a required node
affinity must match both the pool's terms and the operator's. The model of the pool limits which
fields it may set (``flowmesh_core.spec.pool_template``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.spec.pool_template import PodTemplate

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = "nodeSelectorTerms"

Json = dict[str, Any]


def overlaid(template: Json, over: PodTemplate) -> Json:
    """Returns the pod template merged with the pool's; neither argument is changed."""
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
            # The operator's labels last: selectors depend on them.
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
    """Returns two lists merged by a field of their items; items of the second replace others."""
    given = {item.get(key): item for item in over}
    merged = [given.pop(item[key], item) for item in items]
    return [*merged, *(item for item in over if item.get(key) in given)]


def affinity_with(affinity: Mapping[str, Any], needed: Mapping[str, Any]) -> Json:
    """Returns the pool's affinity with the operator's node expressions added to each term.

    Args:
        affinity: the pool's affinity.
        needed: the operator's affinity: at most a required node affinity of one term.
    """
    node = dict(affinity.get("nodeAffinity") or {})
    terms = (needed.get("nodeAffinity") or {}).get(_REQUIRED, {}).get(_TERMS, [])
    if not terms:
        return dict(affinity)
    required = terms[0]["matchExpressions"]
    own = (node.get(_REQUIRED) or {}).get(_TERMS) or [{}]
    node[_REQUIRED] = {
        _TERMS: [
            {**term, "matchExpressions": [*required, *term.get("matchExpressions", [])]}
            for term in own
        ]
    }
    return {**affinity, "nodeAffinity": node}

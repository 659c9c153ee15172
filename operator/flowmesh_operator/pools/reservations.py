"""Which pools are reserved, and for which namespaces, from the pools' objects.

A pool whose object is deleted stays reserved: its workers are connected until their pods end.
"""

from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE
from flowmesh_core.spec.namespaces import SelectedNamespaces
from flowmesh_operator.kube.informer_cache import Object


def reserved_pools(
    pools: Iterable[Object],
    labels: Mapping[str, Mapping[str, str]],
    before: Mapping[str, frozenset[str]],
) -> dict[str, frozenset[str]]:
    """Returns reserved pool → the namespaces that it admits.

    Args:
        pools: the pools' objects.
        labels: of every namespace that exists.
        before: what it returned last.
    """
    found = dict(before)
    for pool in pools:
        name, spec = pool["metadata"]["name"], pool["spec"].get("reservedFor")
        admitted = None if spec is None else _admitted(spec, labels)
        if admitted is not None:
            found[name] = admitted
        else:
            found.pop(name, None)
    return found


def _admitted(spec: object, labels: Mapping[str, Mapping[str, str]]) -> frozenset[str] | None:
    """Returns the admitted namespaces; None for all, and none where the spec is invalid."""
    try:
        selected = SelectedNamespaces.model_validate(spec)
    except ValidationError:
        return frozenset()
    if ANY_NAMESPACE in selected.names:
        return None
    wanted = selected.labels.items()
    by_label = (name for name, known in labels.items() if wanted and wanted <= known.items())
    return frozenset([*selected.names, *by_label])

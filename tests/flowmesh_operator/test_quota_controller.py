"""Objects of quotas and reserved pools as the control plane reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_api.v1.quotas import Quota
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.pools.reservations import reserved_pools
from flowmesh_operator.quotas.controller import QuotaController

LABELS = {"team-a": {"tier": "gold"}, "team-b": {}, "team-c": {"tier": "gold", "x": "y"}}


class Given:
    """Keeps what the controller sets."""

    quotas: Sequence[Quota] = ()
    labels: Mapping[str, Mapping[str, str]] = {}

    async def replace_all(
        self, quotas: Sequence[Quota], labels: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.quotas, self.labels = quotas, labels


def quota(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshQuota",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": spec,
    }


def pool(name: str, reserved_for: Any = None) -> dict[str, Any]:
    spec = {"image": "i"} if reserved_for is None else {"image": "i", "reservedFor": reserved_for}
    return {"metadata": {"name": name}, "spec": spec}


async def test_quotas_reach_the_control_plane_and_an_invalid_one_is_left_out() -> None:
    mirror, given = InformerCache(), Given()
    selected = {"selector": {"matchLabels": {"tier": "gold"}}}
    mirror.update("quotas", "ADDED", quota("gold", namespaces=selected, weight=2, openWatches=5))
    mirror.update("quotas", "ADDED", quota("wrong", namespaces={}, weight=-1))
    meta = {"name": "team-a", "uid": "n", "resourceVersion": "1", "labels": LABELS["team-a"]}
    mirror.update("namespaces", "ADDED", {"metadata": meta})
    await QuotaController(mirror, given).apply()
    assert given.quotas == [Quota(name="gold", labels={"tier": "gold"}, weight=2, open_watches=5)]
    assert given.labels == {"team-a": {"tier": "gold"}}


def test_a_reserved_pool_admits_names_and_labels() -> None:
    selector = {"matchLabels": {"tier": "gold"}}
    pools = [
        pool("open"),
        pool("named", {"names": ["team-b", "later"]}),
        pool("labelled", {"names": ["team-b"], "selector": selector}),
        pool("everyone", {"names": ["*"]}),
        pool("invalid", {"names": "team-b"}),
    ]
    assert reserved_pools(pools, LABELS, {}) == {
        "named": frozenset({"team-b", "later"}),
        "labelled": frozenset({"team-a", "team-b", "team-c"}),
        "invalid": frozenset(),
    }


def test_a_reserved_pool_that_is_deleted_stays_reserved_for_the_workers_that_it_leaves() -> None:
    before = {"gone": frozenset({"team-a"}), "opened": frozenset({"team-a"})}
    assert reserved_pools([pool("opened")], LABELS, before) == {"gone": frozenset({"team-a"})}

"""Objects of quotas and reserved pools as the control plane reads them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tests.flowmesh_operator.test_policy_status import Patched, Third, condition

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.spec.quota_status import FlowMeshQuotaStatus
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.pools.reservations import reserved_pools
from flowmesh_operator.quotas.controller import QuotaController

if TYPE_CHECKING:
    from flowmesh_operator.kube.client import KubeClient

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


def controller(mirror: InformerCache, given: Given) -> QuotaController:
    api = cast("KubeClient", Patched(mirror, kind="quotas"))
    return QuotaController(api, mirror, given, cast("Any", Third()))


async def test_quotas_reach_the_control_plane_and_an_invalid_one_is_left_out() -> None:
    mirror, given = InformerCache(), Given()
    selected = {"selector": {"matchLabels": {"tier": "gold"}}}
    mirror.update("quotas", "ADDED", quota("gold", namespaces=selected, weight=2, workers=5))
    mirror.update("quotas", "ADDED", quota("wrong", namespaces={}, weight=-1))
    mirror.update("quotas", "ADDED", quota("less", namespaces=selected, workers=-1))
    mirror.update("quotas", "ADDED", quota("more", namespaces=selected, workers=100_001))
    meta = {"name": "team-a", "uid": "n", "resourceVersion": "1", "labels": LABELS["team-a"]}
    mirror.update("namespaces", "ADDED", {"metadata": meta})
    await controller(mirror, given).apply()
    assert given.quotas == [Quota(name="gold", labels={"tier": "gold"}, weight=2, workers=5)]
    assert given.labels == {"team-a": {"tier": "gold"}}


async def test_a_quota_says_whether_it_is_in_force_and_where_it_applies() -> None:
    mirror, given = InformerCache(), Given()
    selected = {"selector": {"matchLabels": {"tier": "gold"}}}
    for obj in (
        quota("all", namespaces={"names": ["*"]}),
        quota("gold", namespaces=selected),
        quota("wrong", namespaces={}, weight=-1),
    ):
        mirror.update("quotas", "ADDED", obj)
    for name, labels in LABELS.items():
        meta = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
        mirror.update("namespaces", "ADDED", {"metadata": meta})
    made = controller(mirror, given)
    await made.apply()
    await made.show()
    found = {q["metadata"]["name"]: q["status"] for q in mirror.quotas.values()}
    for status in found.values():
        FlowMeshQuotaStatus.model_validate(status)
    assert (found["gold"]["covered"], found["gold"]["namespaces"]) == (2, ["team-a", "team-c"])
    assert condition(found["gold"], "Accepted") == ("True", "Valid", "")
    assert condition(found["gold"], "Overridden") == ("False", "Applies", "")
    assert found["all"]["namespaces"] == ["team-b"]
    said = "another quota applies: gold (to team-a)"
    assert condition(found["all"], "Overridden") == ("True", "MoreSpecific", said)
    status, reason, message = condition(found["wrong"], "Accepted")
    assert (status, reason) == ("False", "Invalid")
    assert "spec.weight" in message
    assert found["wrong"]["covered"] == 0


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

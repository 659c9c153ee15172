"""What the status of a cache policy says: accepted, conflicts, namespaces that it covers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.spec.namespaces_status import NAMESPACES_SHOWN
from flowmesh_core.spec.policy_status import FlowMeshCachePolicyStatus
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.policies.controller import PolicyController

if TYPE_CHECKING:
    from flowmesh_operator.kube.client import KubeClient


@dataclass
class Patched:
    """An API server that accepts every status."""

    mirror: InformerCache
    writes: list[str] = field(default_factory=list)
    kind: str = "policies"

    async def patch_status(self, *where: str, **_: Any) -> dict[str, Any]:
        *_, name, body = cast("tuple[Any, ...]", where)
        self.writes.append(name)
        known: dict[str, dict[str, Any]] = getattr(self.mirror, self.kind)
        before = next(p for p in known.values() if p["metadata"]["name"] == name)
        status = {**before.get("status", {}), **body["status"]}
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        return {
            **before,
            "metadata": {**before["metadata"], "resourceVersion": version},
            "status": status,
        }


class Given:
    """Keeps the policies that are in force."""

    def __init__(self) -> None:
        self.rules = list[CachePolicy]()

    def scopes(self, namespace: str, labels: dict[str, str] | None = None) -> ScopePlan:
        raise AssertionError("the status of a policy asks for no scopes")

    async def replace_all(self, policies: Iterable[CachePolicy]) -> None:
        self.rules = list(policies)


class Third:
    """The third epoch."""

    number = 3

    def now_s(self) -> float:
        return 1000.0


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshCachePolicy",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 2},
        "spec": spec,
    }


async def statuses(
    policies: Iterable[dict[str, Any]], namespaces: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, dict[str, Any]], Given, Patched]:
    mirror, given = InformerCache(), Given()
    for obj in policies:
        mirror.update("policies", "ADDED", obj)
    for name, labels in namespaces.items():
        meta = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
        mirror.update("namespaces", "ADDED", {"metadata": meta})
    api = Patched(mirror)
    controller = PolicyController(cast("KubeClient", api), mirror, given, cast("Any", Third()))
    await controller.apply()
    await controller.show()
    await controller.show()  # nothing has changed, so nothing is written
    found = {p["metadata"]["name"]: p["status"] for p in mirror.policies.values()}
    for status in found.values():
        FlowMeshCachePolicyStatus.model_validate(status)
    return found, given, api


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    (found,) = [c for c in status["conditions"] if c["type"] == kind]
    assert found["lastTransitionTime"]
    return found["status"], found["reason"], found["message"]


async def test_a_policy_shows_the_namespaces_that_it_covers() -> None:
    selected = {"names": ["team-b", "not-yet"], "selector": {"matchLabels": {"tier": "gold"}}}
    found, given, api = await statuses(
        [policy("friends", scope="group", group="friends", namespaces=selected)],
        {"team-a": {"tier": "gold"}, "team-b": {}, "team-c": {}},
    )
    status = found["friends"]
    assert (status["covered"], status["namespaces"]) == (2, ["team-a", "team-b"])
    assert (status["observedGeneration"], status["epoch"]) == (2, 3)
    assert condition(status, "Accepted") == ("True", "Valid", "")
    assert condition(status, "Conflicting") == ("False", "Agreed", "")
    assert [rule.name for rule in given.rules] == api.writes == ["friends"]


async def test_an_invalid_policy_is_not_accepted_and_says_why() -> None:
    found, given, _ = await statuses(
        [policy("wrong", scope="group", namespaces={"names": ["team-a"]})], {"team-a": {}}
    )
    status, reason, message = condition(found["wrong"], "Accepted")
    assert (status, reason) == ("False", "Invalid")
    assert "group is required where scope is group" in message
    assert given.rules == []


async def test_policies_that_contradict_each_other_say_so_and_others_do_not() -> None:
    everyone = {"names": ["*"]}
    found, _, _ = await statuses(
        [
            policy("all", scope="all", namespaces=everyone),
            policy("alone", scope="private", namespaces={"names": ["team-a"]}),
            policy("other", scope="all", namespaces={"names": ["team-b"]}),
        ],
        {"team-a": {}, "team-b": {}},
    )
    for name in ("all", "alone"):
        status, reason, message = condition(found[name], "Conflicting")
        assert (status, reason) == ("True", "Contradicted"), name
        assert "team-a" in message
        assert "alone" in message
    assert condition(found["other"], "Conflicting")[0] == "False"


async def test_of_very_many_namespaces_the_first_are_shown() -> None:
    found, _, _ = await statuses(
        [policy("all", scope="all", namespaces={"names": ["*"]})],
        {f"team-{n:03}": {} for n in range(150)},
    )
    assert found["all"]["covered"] == 150
    assert len(found["all"]["namespaces"]) == NAMESPACES_SHOWN

"""Raising a scope's generation voids its references, and readers of ended runs get new ones."""

import pytest

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.output_references import current_status, with_references
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.run_records import FinalRecord
from flowmesh_core.errors import InvalidReferenceError, SpecError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import content_artifact
from flowmesh_core.sharing import KeyRing
from flowmesh_store.store import open_store

CONTENT = digest_bytes(b"content")
RING = KeyRing.of(b"k" * 32)


def group(generation: int, name: str = "x", **changes: object) -> CachePolicy:
    given = {
        "scope": Sharing.GROUP,
        "group": "x",
        "namespaces": ("a", "b"),
        "reference_generation": generation,
    }
    return CachePolicy(name, **(given | changes))  # type: ignore[arg-type]


@pytest.fixture
def policies() -> CachePolicyStore:
    return CachePolicyStore(open_store("memory:").records)


async def test_raising_the_generation_voids_every_reference_of_the_scope(
    policies: CachePolicyStore,
) -> None:
    issuer = ReferenceIssuer(RING, policies)
    await policies.put(group(0))
    shared = issuer.issue("group-x", "model", CONTENT)
    own = issuer.issue("ns-a", "model", CONTENT)
    b = policies.scopes("b")
    assert issuer.verify(shared, [b]).blob == CONTENT
    await policies.put(group(1))
    with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
        issuer.verify(shared, [b])
    assert issuer.verify(issuer.issue("group-x", "model", CONTENT), [b]).blob == CONTENT
    # The namespace's own scope is another one.
    assert issuer.verify(own, [policies.scopes("a")]).blob == CONTENT


async def test_a_group_of_several_policies_has_the_highest_generation(
    policies: CachePolicyStore,
) -> None:
    issuer = ReferenceIssuer(RING, policies)
    await policies.put(group(1))
    shared = issuer.issue("group-x", "blob", CONTENT)
    await policies.put(group(0, "other", namespaces=("c",)))
    assert issuer.verify(shared, [policies.scopes("c")]).blob == CONTENT


async def test_an_ended_run_shows_references_that_are_valid_now(
    policies: CachePolicyStore,
) -> None:
    issuer = ReferenceIssuer(RING, policies)
    await policies.put(group(0))
    outputs = {"made": (content_artifact("blob", CONTENT, 7),)}
    status = RunStatus("u1", "n", "a", "Succeeded", 0.5, 3.0)
    bare = RunStatus(**{**_fields(status), "outputs": {"made": {"kind": "blob"}}})
    final = FinalRecord(1, with_references(bare, outputs, issuer, "group-x"), outputs, "group-x")
    assert current_status(final, issuer) == final.status
    await policies.put(group(1))
    shown = current_status(final, issuer).outputs["made"]
    assert shown is not None
    assert shown["reference"] != final.status.outputs["made"]["reference"]  # type: ignore[index]
    assert issuer.verify(shown["reference"], [policies.scopes("b")]).blob == CONTENT


def _fields(status: RunStatus) -> dict[str, object]:
    return {name: getattr(status, name) for name in status.__struct_fields__}


async def test_a_private_policy_sets_the_generation_only_for_namespaces_by_name(
    policies: CachePolicyStore,
) -> None:
    issuer = ReferenceIssuer(RING, policies)
    own = issuer.issue("ns-a", "blob", CONTENT)
    private = {"scope": Sharing.PRIVATE, "group": ""}
    await policies.put(group(1, "p", namespaces=("a",), **private))
    with pytest.raises(InvalidReferenceError):
        issuer.verify(own, [policies.scopes("a")])
    with pytest.raises(SpecError, match="cannot set it by labels; name the namespaces"):
        await policies.put(group(1, "q", namespaces=("c",), labels={"team": "a"}, **private))

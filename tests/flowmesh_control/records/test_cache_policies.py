"""Cache policies are durable, and checked before they are written."""

import pytest

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_core.errors import SpecError
from flowmesh_store.store import Store


async def test_policies_survive_a_restart_and_their_removal_does_too(store: Store) -> None:
    policies = CachePolicyStore(store.records)
    group = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a", "team-b"))
    await policies.put(group)
    await policies.put(CachePolicy("h", Sharing.ALL, namespaces=("team-c",)))
    again = CachePolicyStore(store.records)
    await again.load()
    assert again.scopes("team-a").publish == "group-x"
    await again.replace_all([group])
    last = CachePolicyStore(store.records)
    await last.load()
    assert [p.name for p in last.all()] == ["g"]
    assert last.scopes("team-c").publish == "ns-team-c"


async def test_a_malformed_policy_is_refused_before_it_is_written(store: Store) -> None:
    policies = CachePolicyStore(store.records)
    with pytest.raises(SpecError, match="needs a group"):
        await policies.put(CachePolicy("g", Sharing.GROUP, namespaces=("team-a",)))
    assert [k async for k in store.records.keys("policies/")] == []

"""A pool's trust is what its object says, whatever its workers say."""

from dataclasses import replace
from typing import Any

import pytest
from tests.flowmesh_operator.pool_builder import AROUND, make_pool, pool_object

from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.pools.pool import PoolEntry
from flowmesh_operator.pools.trust import PoolTrusts, directory_refusal
from flowmesh_operator.pools.worker_shape import pool_declaration, pool_shape


def stored(spec: dict[str, Any], name: str = "cpu", generation: int = 1, **where: str) -> Any:
    found = pool_object(spec, name, **where)
    found["metadata"]["generation"] = generation
    return found


@pytest.mark.parametrize(
    ("spec", "trust"),
    [({}, 2), ({"trust": 0}, 0), ({"userCode": True}, 1), ({"minReplicas": -1}, 0)],
    ids=["unsaid", "said", "users' code", "invalid"],
)
async def test_a_pools_object_determines_its_trust(spec: dict[str, Any], trust: int) -> None:
    mirror = InformerCache()
    mirror.pools["uid"] = stored(spec)
    assert PoolTrusts(mirror, "flowmesh")("cpu") == trust


async def test_a_pool_without_an_object_and_a_token_for_any_pool_have_no_trust() -> None:
    mirror = InformerCache()
    mirror.pools["uid"] = stored({}, namespace="elsewhere")
    trust_of = PoolTrusts(mirror, "flowmesh")
    assert (trust_of("cpu"), trust_of("*")) == (0, 0)


async def test_a_changed_object_changes_the_trust() -> None:
    mirror = InformerCache()
    mirror.pools["uid"] = stored({})
    trust_of = PoolTrusts(mirror, "flowmesh")
    assert trust_of("cpu") == 2
    mirror.pools["uid"] = stored({"trust": 1}, generation=2)
    assert trust_of("cpu") == 1
    del mirror.pools["uid"]
    assert trust_of("cpu") == 0


def test_changed_trust_preserves_the_state_of_a_pools_workers() -> None:
    catalog, before = load_catalog(), make_pool()
    entry = PoolEntry(before, pool_shape(before, catalog), pool_declaration(before, catalog))
    entry.change(make_pool({"trust": 1}), catalog, 50.0)
    assert (entry.shape.trust, entry.since_s) == (1, 0.0)


def test_a_directory_refuses_pools_of_trust_0_and_a_bucket_none() -> None:
    directory = replace(AROUND, store="file:///var/lib/flowmesh-store", blob_service="")
    for spec in ({"trust": 0}, {"trust": 1}, {}):
        assert directory_refusal(make_pool(spec), AROUND) == ""
        assert bool(directory_refusal(make_pool(spec), directory)) == (spec == {"trust": 0})
    assert "store.type s3 or versitygw" in directory_refusal(make_pool({"trust": 0}), directory)

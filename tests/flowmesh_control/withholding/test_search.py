"""Which results a selection finds, and what was made of them."""

from typing import Any

import msgspec

from flowmesh_api.v1.lineage import Derivation
from flowmesh_control.records.derived_artifacts import derived_from
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.withholding.search import search
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import (
    ActionResult,
    PartProvenance,
    Provenance,
    content_artifact,
)
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.store import Store


def digest(name: str) -> Digest:
    return digest_bytes(name.encode())


async def publish(store: Store, name: str, scope: str = "group-x", **made: Any) -> None:
    created_s = made.pop("created_s", 100.0)
    result = ActionResult(
        action_id=digest(name),
        generation=0,
        engine="test.noop",
        contract=1,
        implementation=1,
        inputs={},
        outputs={"blob": content_artifact("blob", digest(f"output of {name}"))},
        provenance=Provenance(**{"attempt_id": name, **made}),
        created_s=created_s,
    )
    await ActionCache(store.records).publish(scope, result)


async def found(store: Store, **conditions: Any) -> set[str]:
    outcome = await search(store, ResultSelection(**conditions))
    names = {digest(name): name for name in ("a", "b", "c", "whole")}
    return {names[one.result.action_id] for one in outcome.found}


async def test_a_selection_finds_results_of_all_scopes_by_provenance(store: Store) -> None:
    await publish(store, "a", worker="w-1", pool="w", libraries={"torch": "2.1"}, created_s=100.0)
    await publish(store, "b", "ns-team-a", worker="w-2", pool="w", created_s=200.0)
    await publish(store, "c", worker="w-1", pool="x", libraries={"torch": "2.2"}, created_s=300.0)
    assert await found(store, worker="w-1") == {"a", "c"}
    assert await found(store, worker="w-1", pool="w") == {"a"}
    assert await found(store, pool="w") == {"a", "b"}
    assert await found(store, attempt="b") == {"b"}
    assert await found(store, since_s=200.0) == {"b", "c"}
    assert await found(store, since_s=200.0, until_s=250.0) == {"b"}
    assert await found(store, library="torch") == {"a", "c"}
    assert await found(store, library="torch=2.1") == {"a"}
    assert await found(store, library="torch==2.2") == {"c"}
    assert await found(store, worker="absent") == set()


async def test_a_whole_step_is_found_with_each_of_its_parts(store: Store) -> None:
    await publish(store, "a", worker="w-1", pool="w", libraries={"torch": "2.1"})
    await publish(store, "b", worker="w-2", pool="w")
    parts = tuple(PartProvenance(n, f"w-{i}", "w", 100.0) for n, i in (("a", 1), ("b", 2)))
    await publish(store, "whole", attempt_id="", parts=parts)
    assert await found(store, worker="w-1") == {"a", "whole"}
    assert await found(store, attempt="b") == {"b", "whole"}
    assert await found(store, library="torch") == {"a", "whole"}
    assert await found(store, since_s=101.0) == set()


async def test_a_record_that_is_not_believed_is_passed_over(store: Store) -> None:
    await publish(store, "a", worker="w-1", pool="w")
    await store.records.write(f"actions/group-x/{digest('b')}", b"{}")
    assert await found(store, worker="w-1") == {"a"}


def derivation(uid: str, step: str, used: str, made: str) -> Derivation:
    return Derivation(
        uid=uid,
        run="run",
        namespace=f"team-of-{uid}",
        step=step,
        engine="test.noop",
        contract=1,
        implementation=1,
        inputs={"in": (digest(used),)},
        outputs={"out": digest(made)},
        time_s=1.0,
    )


async def test_lineage_is_followed_down_through_the_runs_of_all_namespaces(store: Store) -> None:
    lineage = LineageIndex(store.records)
    await lineage.write("r1", [derivation("r1", "make", "origin", "lie")])
    await lineage.write("r2", [derivation("r2", "train", "lie", "model")])
    await lineage.write("r3", [derivation("r3", "ask", "model", "answers")])
    await lineage.write("r4", [derivation("r4", "other", "origin", "unrelated")])
    derived = await derived_from(lineage, {digest("lie")})
    assert [d.uid for d in derived.having] == ["r1"]
    assert [d.uid for d in derived.derived] == ["r2", "r3"]
    assert not derived.cut
    assert (await derived_from(lineage, {digest("lie")}, limit=1)).cut
    assert msgspec.json.encode((await derived_from(lineage, set())).derived) == b"[]"

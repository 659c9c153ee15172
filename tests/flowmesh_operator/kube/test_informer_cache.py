"""The cache of watched objects."""

import asyncio
from typing import Any

from flowmesh_operator.kube.informer_cache import InformerCache, condensed


def obj(uid: str, version: int = 1, **more: Any) -> dict[str, Any]:
    meta = {"uid": uid, "name": uid, "namespace": "n", "generation": 1, "managedFields": [1]}
    return {"metadata": {**meta, "resourceVersion": str(version)}, "spec": {"steps": [1]}, **more}


async def test_an_older_state_does_not_replace_a_newer_one() -> None:
    mirror = InformerCache()
    mirror.update("policies", "ADDED", obj("a", 9, x="new"))
    mirror.update("policies", None, obj("a", 10_000, x="newest"))
    mirror.update("policies", "MODIFIED", obj("a", 99, x="old"))
    assert mirror.policies["a"]["x"] == "newest"
    assert "managedFields" not in mirror.policies["a"]["metadata"]


async def test_a_list_detects_deletions_and_does_not_undo_events_that_arrived_meanwhile() -> None:
    mirror = InformerCache()
    for uid in ("kept", "missed", "seen-deleted"):
        mirror.update("workflows", None, obj(uid))
    before = mirror.begin("workflows")
    mirror.update("workflows", "ADDED", obj("new"))
    mirror.update("workflows", "DELETED", obj("seen-deleted"))
    mirror.listed("workflows", before, [obj("kept"), obj("seen-deleted"), obj("not-seen-yet")])
    assert set(mirror.workflows) == {"kept", "new"}
    assert [u for u in ("kept", "new", "not-seen-yet", "missed", "seen-deleted")
            if mirror.exists(u)] == ["kept", "new", "not-seen-yet"]  # fmt: skip


async def test_changes_list_existing_objects_first_and_then_each_changed_or_deleted_one_once() -> (
    None
):
    mirror = InformerCache()
    mirror.update("workflows", None, obj("a"))
    changes = mirror.changes("workflows")
    assert await anext(changes) == "a"
    mirror.update("workflows", "MODIFIED", obj("a", 2))
    mirror.update("workflows", "MODIFIED", obj("a", 3))
    mirror.update("workflows", "DELETED", obj("a", 4))
    assert await anext(changes) == "a"
    follow = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    assert not follow.done()
    await asyncio.to_thread(mirror.post, "workflows", "ADDED", obj("b"))
    assert await follow == "b"


async def test_namespaces_are_cached_by_name_with_their_labels() -> None:
    mirror = InformerCache()
    labelled = obj("u")
    labelled["metadata"] |= {"name": "team-a", "labels": {"tier": "gold"}}
    mirror.update("namespaces", None, labelled)
    assert mirror.namespaces == {"team-a": {"tier": "gold"}}
    mirror.update("namespaces", "DELETED", labelled)
    assert mirror.namespaces == {}


def test_a_workflow_is_cached_whole_until_it_was_reconciled_and_condensed_afterwards() -> None:
    spec = {"steps": ["x" * 1000], "priority": 3, "ttlSecondsAfterFinished": 60}
    new = {**obj("a"), "spec": spec}
    assert condensed(new) is new
    shown = {"phase": "Running", "observedGeneration": 1, "epoch": 2}
    running = condensed({**new, "status": shown})
    assert running["spec"] == {"priority": 3, "ttlSecondsAfterFinished": 60}
    assert running["status"] == shown
    ended = condensed({**new, "status": {**shown, "phase": "Failed", "message": "m" * 1000}})
    assert ended["status"] == {"phase": "Failed", "observedGeneration": 1}
    assert len(str(ended)) < 400

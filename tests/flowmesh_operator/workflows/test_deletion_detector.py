"""Detection of runs without an object, at the start and after each list of a watch."""

import asyncio
from typing import Any

from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.workflows.deletion_detector import DELETED, DeletionDetector, withdrawn

A, B, C = (f"{c * 8}-{c * 4}-{c * 4}-{c * 4}-{c * 12}" for c in "abc")


class Listing:
    """A fake API server with workflows, which counts the lists."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = [*objects]
        self.lists = 0

    async def list(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        self.lists += 1
        return self.objects


def _named(uid: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid[:1], "namespace": "n", **meta}}


async def test_runs_whose_object_is_deleted_or_being_deleted_are_withdrawn() -> None:
    api = Listing(_named(A), _named(B, deletionTimestamp="2026-01-01T00:00:00Z"))
    mirror = InformerCache()
    found = await withdrawn(api, mirror, [A, B, C, "without-an-object-1234"])  # type: ignore[arg-type]
    assert found == {B: DELETED, C: DELETED}
    assert mirror.complete.is_set()
    assert mirror.exists(A)
    assert not mirror.exists(C)


async def test_nothing_is_listed_where_no_run_has_an_object() -> None:
    api, mirror = Listing(), InformerCache()
    assert await withdrawn(api, mirror, ["without-an-object-1234"]) == {}  # type: ignore[arg-type]
    assert api.lists == 0
    assert not mirror.complete.is_set()


async def _absent(api: Listing, mirror: InformerCache) -> list[str]:
    absent: list[str] = []
    absences = DeletionDetector(api, mirror, live=lambda: [A, B, "x-1234"], absent=absent.append)  # type: ignore[arg-type]
    run = asyncio.create_task(absences.run())
    for _ in range(5):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    return absent


async def test_the_initial_list_is_not_requested_twice() -> None:
    api, mirror = Listing(_named(A), _named(B)), InformerCache()
    assert await withdrawn(api, mirror, [A, B]) == {}  # type: ignore[arg-type]
    mirror.update("workflows", "DELETED", _named(B))
    assert await _absent(api, mirror) == [B]
    assert api.lists == 1


async def test_without_an_initial_list_the_first_check_requests_one() -> None:
    api, mirror = Listing(_named(A)), InformerCache()
    assert await _absent(api, mirror) == [B]
    assert api.lists == 1

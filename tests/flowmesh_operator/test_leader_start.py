"""What a new leader knows before workers and users can connect to it."""

from pathlib import Path
from typing import Any, cast

import pytest
from tests.flowmesh_control.fabric import KEY, control_plane
from tests.flowmesh_operator.pool_builder import pool_object

from flowmesh_control.services import ControlPlaneServices
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.kube.kinds import POOLS
from flowmesh_operator.leadership import leader
from flowmesh_operator.settings import OperatorSettings


class ListensError(Exception):
    """Ends the test where the control plane would begin to take connections."""


class Listed:
    """An API server that has one pool, and nothing else."""

    async def list(self, group: str, version: str, plural: str, *_: Any, **__: Any) -> list[Any]:
        if (group, version, plural) != POOLS:
            return []
        found = pool_object({"devices": {"count": 1, "memory": "40Gi"}})
        found["metadata"] |= {"generation": 1, "resourceVersion": "1"}
        return [found]

    def with_single_try(self, _: float) -> "Listed":
        return self


async def test_a_leader_knows_its_pools_before_a_worker_can_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a pool that is not known is refused, and tries again only seconds later."""
    plane, known = control_plane(tmp_path), list[PoolDeclaration | None]()

    async def listen(services: ControlPlaneServices, host: str, port: int) -> None:
        known.append(services.signals.declaration("cpu"))
        raise ListensError(f"{host}:{port}")

    monkeypatch.setattr(plane, "_listen", listen)
    monkeypatch.setattr(leader, "make_control_plane", lambda *_: plane)
    settings = OperatorSettings(store="", key_ring=KEY, namespace="flowmesh")
    api, store = cast("Any", Listed()), plane._bare_store
    with pytest.raises(ListensError):
        await leader._run_as_leader(api, InformerCache(), settings, store, "a")
    store.close()
    (declaration,) = known
    assert declaration is not None
    assert declaration.device_memory_mib == 40 * 1024

"""A control plane in a process of its own that keeps a replica of ``test.echo`` on each worker.

``python -m tests.flowmesh_serving.planning_control ROOT PORT``. The planner places what loads
a model; ``test.echo`` loads none, so the planner's place in its loop is taken here. Where ROOT has
a file ``arrays``, each worker also gets the replicas of ``array_service``.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_serving import array_service
from tests.flowmesh_serving.stack import SALTS, SERVICE

from flowmesh_control.serving.replica_planner import ReplicaPlanner
from flowmesh_control.settings import ControlSettings
from flowmesh_core.machine import serving
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica
from flowmesh_core.units import Digest

_SALTS = {**SALTS, "team-b": "salt-b"}
_OPENING = PrewarmSpec(Digest("ec" * 32), "test.echo", 1, 1, memory_mib=64)


def replica_id(worker: str) -> str:
    """Returns the replica that a worker gets."""
    return f"{SERVICE}/llm/r1/{worker}"


def _plan_of(root: Path) -> Callable[[ReplicaPlanner], Coroutine[None, None, None]]:
    has_arrays = (root / "arrays").exists()
    catalog = builtin_catalog()

    def of_worker(name: str) -> tuple[ServingReplica, ...]:
        echo = ServingReplica(replica_id(name), SERVICE, "llm", "r1", _OPENING, 0, _SALTS)
        return (echo, *(array_service.replicas(name, catalog) if has_arrays else ()))

    async def plan(self: ReplicaPlanner) -> None:
        workers = {name: of_worker(name) for name in self._state.workers}
        if not serving.plan_is_current(self._state, workers, self._routers):
            await self._post_and_wait(ServingPlanChanged(workers, self._routers))

    return plan


async def serve(root: Path, port: int) -> None:
    """Leads until it is killed."""
    ReplicaPlanner.update = _plan_of(root)  # type: ignore[method-assign]
    routers = tuple(f"unix:{root / name / 'hubs'}" for name in ("router-0", "router-1"))
    control = control_plane(root, settings=ControlSettings(routers=routers))
    await control.start(port=port)
    await control.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))

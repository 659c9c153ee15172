"""Attacker: T2, a tenant that may create services, while a control plane begins to lead.
Action: serves a model before the operator has said which pools are reserved.
Must not happen: a worker of a pool that is reserved for others loads it.
"""

from dataclasses import replace

from tests.attacks.by_hand import MACHINE, place, until
from tests.attacks.stored_services import apply, model_of, served, service, with_hub
from tests.flowmesh_control.fabric import loop_of, machine_of

from flowmesh_core.machine.events import ReservedPoolsChanged


async def test_no_replica_is_placed_before_the_reserved_pools_are_known() -> None:
    async with place(machine=replace(MACHINE, pools_are_declared=True)) as there:
        worker = await with_hub(there, "w")
        await until(lambda: machine_of(there.control).state.workers)
        services = there.control.services
        for team in ("team-a", "team-b"):
            await apply(there, service(team, await model_of(there, team)))
        await services.registry.resolve()
        assert all(s.release is not None for s in services.registry.all())
        await services.replica_planner.update()
        await there.heard()
        assert services.replica_planner.plan.workers == {}
        reserved = ReservedPoolsChanged({"good": frozenset({"team-a"})})
        await loop_of(there.control).post_and_wait(reserved)
        await services.replica_planner.update()
        await until(lambda: worker.replicas)
        assert served(worker) == {"team-a/ask"}

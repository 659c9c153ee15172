"""What pools have before them, and what their workers hold open, as the operator reads it."""

import msgspec
from tests.flowmesh_core.machine.test_prewarm import BASE, two_steps
from tests.flowmesh_core.machine.world import ASK, World, shape

from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.machine.events import PrewarmPlanChanged
from flowmesh_core.machine.prewarm import prewarm_is_current
from flowmesh_core.protocol.messages import EngineVariant

ASKS = (EngineVariant(ASK.name, dtypes=("float32",)),)


def test_workers_of_a_declared_pool_prewarm_the_engines_of_upcoming_steps() -> None:
    world = World()
    world.join("w", variants=ASKS)
    large = msgspec.structs.replace(BASE, size_bytes=7 << 29)  # to load it again takes long
    world.submit(two_steps(), artifacts=(large,))
    world.tick(1.0)
    backlogs = CapacitySignalSource(world.machine.state, lambda: world.now)
    slow = PoolView("default", shape("any", variants=ASKS), maximum=3, start_s=60.0)
    backlogs.declare(lambda: [slow])
    assert backlogs.now()["default"].warm == 1
    ((worker, (signature,)),) = backlogs.prewarm_plan().items()
    assert worker == "w"
    world.apply(PrewarmPlanChanged(backlogs.prewarm_plan()))
    assert prewarm_is_current(world.machine.state, backlogs.prewarm_plan())
    ((_, (opening,)),) = world.told
    assert (opening.signature, opening.components) == (signature, {"model": large})

"""A tenant of greater weight gets more of what the workers cost."""

import pytest
from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_core.machine.settings import Settings


@pytest.mark.parametrize("heavy", ["team-a", "team-b"])
def test_a_tenant_of_weight_four_has_been_served_far_more_when_both_compete(heavy: str) -> None:
    world = World(settings=Settings(watchdog_s=1e9, tenant_weights={heavy: 4.0}))
    world.join("w1")
    for team in ("team-a", "team-b"):
        steps = (step(f"s{n}", uses=SOLO, v=f"{team}{n}") for n in range(150))
        world.submit(plan(*steps, namespace=team), team)
    world.run(lambda w: len(w.executed) >= 150)
    paid = {uid: run.paid_nanousd for uid, run in world.machine.state.runs.items()}
    (light,) = {"team-a", "team-b"} - {heavy}
    assert paid[heavy] > 2 * paid[light] > 0

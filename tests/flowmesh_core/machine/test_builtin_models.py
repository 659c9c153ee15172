"""A built-in model is brought by a worker that holds it, in a fleet where not every one does."""

import pytest
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.catalog.builtin.importing import RESOLVE

MODEL = "smollm2-135m-instruct"


def resolve(uri: str) -> World:
    """Two workers that are alike but for what their images hold; the thin one is cheaper."""
    world = World()
    world.join("thin", price_nanousd_per_hour=1, builtin_models=())
    world.join("full", price_nanousd_per_hour=10**12, builtin_models=(MODEL,))
    world.submit(plan(step("pin", uses=RESOLVE, uri=uri, kind="model")))
    world.tick(0.1)
    return world


@pytest.mark.parametrize(
    ("uri", "worker"),
    [
        (f"builtin:{MODEL}", "full"),
        # Any worker can say that there is no such model, or ask a hub.
        ("builtin:no-such-model", "thin"),
        ("hf://org/name", "thin"),
    ],
)
def test_only_a_worker_that_holds_the_model_gets_the_action(uri: str, worker: str) -> None:
    world = resolve(uri)
    assert {name for name, held in world.held.items() if held} == {worker}


def test_if_no_worker_has_the_builtin_model_the_step_shows_the_reason() -> None:
    world = World()
    world.join("thin", builtin_models=())
    uid = world.submit(plan(step("pin", uses=RESOLVE, uri=f"builtin:{MODEL}", kind="model")))
    world.tick(0.1)
    pin = world.machine.state.runs[uid].steps["pin"]
    assert pin.wait_reason == RejectionCause.NOT_BUILT_IN
    assert MODEL in pin.wait_detail

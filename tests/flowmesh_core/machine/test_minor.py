"""A step that sets an added parameter runs only on workers that know it, and says so."""

from dataclasses import replace

import msgspec
import pytest
from tests.flowmesh_core.machine import world as world_module
from tests.flowmesh_core.machine.world import CONTRACTS, NOOP, World, plan, step

from flowmesh_core.catalog.contract import Param, ParamType
from flowmesh_core.graph.plan import StepPlan
from flowmesh_core.identity.additions import needed_minor
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.messages import EngineVersion

LATER = replace(NOOP, params=(*NOOP.params, Param("fresh", ParamType.INTEGER, 0, added=2)), minor=2)


def setting(path: str, **params: int) -> StepPlan:
    return msgspec.structs.replace(
        step(path, uses=LATER, **params), minor=needed_minor(LATER, params, {})
    )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A control plane that has the additions, with a worker that does not."""
    newer = tuple(LATER if c is NOOP else c for c in CONTRACTS)
    monkeypatch.setattr(world_module, "CONTRACTS", newer)
    found = World(settings=Settings(watchdog_s=1e9, unplaceable_after_s=5.0))
    found.join("old", engines={NOOP.name: EngineVersion(NOOP.version, NOOP.implementation)})
    return found


def test_a_step_that_sets_an_added_parameter_waits_for_a_worker_that_knows_it(
    world: World,
) -> None:
    uid = world.submit(plan(setting("plain"), setting("new", fresh=1)))
    for _ in range(8):
        world.tick(1.0)
    steps = world.machine.state.runs[uid].steps
    assert [a.attempt_id for a in world.attempts()] == [
        a.attempt_id for a in world.held["old"].values()
    ]
    assert len(world.attempts()) == 1, "the step with the default runs on the old worker"
    assert steps["new"].wait_reason == "version-not-offered"
    assert steps["new"].wait_detail == (
        f"the step sets a parameter that minor 2 of {NOOP.name} added, and workers have minor 0;"
        " update a pool's image, or leave the parameter out"
    )
    world.join("new", engines={NOOP.name: LATER.versions})
    world.tick(1.0)
    assert [a.params for a in world.held["new"].values()] == [{"fresh": 1}]


def test_an_older_control_plane_has_no_such_contract() -> None:
    catalog = World().machine.state.catalog
    needed = setting("a", fresh=1)
    assert catalog.pinned(needed.engine, needed.contract, needed.implementation) is NOOP
    assert catalog.pinned(needed.engine, needed.contract, needed.implementation, 2) is None

"""Engines of later steps are predicted, and workers get plans to prewarm them."""

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.machine.world import ASK, World, after, plan, step

from flowmesh_core.costmodel import CostKey
from flowmesh_core.graph.plan import ArtifactSource, Edge, StepPlan
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.events import PrewarmPlanChanged
from flowmesh_core.machine.fleet_snapshot import ANY_MOMENT_S
from flowmesh_core.machine.prewarm import forecast_demand, prewarm_is_current
from flowmesh_core.protocol.messages import EngineInstanceState, EngineVariant
from flowmesh_core.protocol.results import Artifact

MIB = 1024 * 1024
_DIGEST = digest_bytes(b"base")
BASE = Artifact("model", _DIGEST, _DIGEST, 500 * MIB)


def ask(path: str, *edges: Edge) -> StepPlan:
    model = Edge("model", "model", (ArtifactSource("model", f"cas:{BASE.blob}"),))
    return replace(step(path, model, *edges, uses=ASK), fields={"dtype": "float32"})


def two_steps(**changes: object) -> object:
    return plan(step("first"), ask("then", *after("first")), **changes)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    world = World()
    world.join("w", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
    return world


def demanded(world: World) -> list[tuple[int, float]]:
    """Memory and seconds since the last demand of what is in demand."""
    found = forecast_demand(world.machine.state, world.now)
    return [(one.info.requirement.memory_mib, one.since_s) for one in found]


def test_a_model_is_in_demand_while_the_step_before_it_runs(world: World) -> None:
    assert demanded(world) == []
    world.submit(two_steps(), artifacts=(BASE,))
    world.tick(1.0)
    (running,) = world.attempts()
    assert running.engine == "test.noop"
    assert demanded(world) == [(256 + 500, 0.0)]


def test_the_request_rate_of_a_model_stays_known_when_more_demand_is_forecast(world: World) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    world.run()
    (before,) = forecast_demand(world.machine.state, world.now + 5.0)
    more = plan(step("first", value=2), ask("then", *after("first")), name="more")
    world.submit(more, artifacts=(BASE,))
    world.now += 5.0
    (after_,) = forecast_demand(world.machine.state, world.now)
    assert (before.since_s > 0.0, after_.since_s) == (True, 0.0)
    assert after_.per_s == before.per_s > 0.0


def test_an_engine_that_waits_for_a_step_stays_in_demand_however_long_it_takes(
    world: World,
) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    for _ in range(3):
        world.tick(3000.0)
        world.beat()
    assert demanded(world) == [(256 + 500, 0.0)]


def test_a_run_with_only_hits_requests_no_engine(world: World) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    world.run()
    asked = len(demanded(world))
    world.machine.state.demand = type(world.machine.state.demand)()
    world.mute_store = True
    world.submit(two_steps(name="again"), artifacts=(BASE,))
    assert demanded(world) == [], "it is still being looked up"
    world.answer()
    assert asked == 1
    assert demanded(world) == []


def test_a_suspended_run_requests_no_engine(world: World) -> None:
    world.submit(two_steps(suspend=True), artifacts=(BASE,))
    world.tick(1.0)
    assert demanded(world) == []


def test_a_prewarm_plan_is_sent_once_and_again_when_its_worker_comes_back(
    world: World,
) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    world.tick(1.0)
    (one,) = forecast_demand(world.machine.state, world.now)
    wanted = {"w": (one.info.signature,)}
    state = world.machine.state
    assert not prewarm_is_current(state, wanted)
    for _ in range(2):
        world.apply(PrewarmPlanChanged(wanted))
    assert prewarm_is_current(state, wanted)
    ((worker, (opening,)),) = world.told
    assert worker == "w"
    assert (opening.engine, opening.memory_mib) == (ASK.name, 256 + 500)
    assert opening.components == {"model": BASE}
    world.hello("w")
    assert not prewarm_is_current(state, wanted)
    world.apply(PrewarmPlanChanged(wanted))
    world.apply(PrewarmPlanChanged({}))
    assert [openings for _, openings in world.told] == [(opening,), (opening,), ()]


def test_a_prewarmed_instance_matches_the_assignment_of_the_later_action(world: World) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    world.tick(1.0)
    (one,) = forecast_demand(world.machine.state, world.now)
    opening = world.machine.state.openings[one.info.signature]
    world.finish(world.attempts()[0].attempt_id)
    world.tick(1.0)
    (assignment,) = world.attempts()
    assert assignment.signature == opening.signature
    assert assignment.signature_params == opening.signature_params
    assert (assignment.engine, assignment.contract) == (opening.engine, opening.contract)
    assert {p: assignment.inputs[p].artifact for p in assignment.components} == (opening.components)


def test_an_engine_that_loads_ahead_of_work_is_ready_when_loads_of_it_are(world: World) -> None:
    world.submit(two_steps(), artifacts=(BASE,))
    world.tick(1.0)
    (one,) = forecast_demand(world.machine.state, world.now)
    signature, model = one.info.signature, world.machine.state.model
    key, device = CostKey.of(one.info), "cpu"

    def reported(state: str = "loading", load_s: float = 0.0) -> EngineInstanceState:
        return EngineInstanceState(signature, ASK.name, state, 1, 756, load_s)

    def remaining_s(*instances: EngineInstanceState) -> float:
        if instances:
            world._sync("w", instances=instances)
        (worker,) = world.machine.snapshot(world.now).workers
        return worker.instances[signature].load_remaining_s

    for takes_s in (20.0, 30.0):
        model.observe_load(key, device, BASE.size_bytes, takes_s)
    load_s = model.load_s(key, device, BASE.size_bytes)
    assert remaining_s(reported()) == pytest.approx(load_s)
    world.now += 8.0
    assert remaining_s(reported()) == pytest.approx(load_s - 8.0)
    world.hello("w", instances=(reported(),))
    assert remaining_s() == pytest.approx(load_s - 8.0), "a break of the connection changes nothing"
    world.now += load_s
    assert remaining_s() == ANY_MOMENT_S, "later than predicted"
    assert remaining_s(reported("ready", load_s)) == 0.0
    model.observe_wake(key, device, BASE.size_bytes, 6.0)
    assert remaining_s(reported("loading", load_s)) == pytest.approx(6.0), "it wakes"
    world.join("w", instances=(reported(),))
    assert remaining_s() == pytest.approx(load_s), "since when is not known"


def test_the_steps_of_runs_that_will_need_a_model_are_counted(world: World) -> None:
    def foreseen() -> list[int]:
        return [one.foreseen for one in forecast_demand(world.machine.state, world.now)]

    wide = plan(
        step("first", value=3),
        ask("one", *after("first")),
        ask("two", *after("first")),
        name="wide",
    )
    for submitted in (two_steps(), wide):
        world.submit(submitted, artifacts=(BASE,))  # type: ignore[arg-type]
    world.tick(1.0)
    assert foreseen() == [3]
    world.run()
    assert foreseen() == [0], "none is open any more"

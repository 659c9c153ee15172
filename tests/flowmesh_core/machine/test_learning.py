"""What a worker reports is learned where the estimate or the control plane's own clock agrees."""

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.machine.world import ASK, World, plan, step

from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.graph.plan import ArtifactSource, Edge, Resources
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.learning import ESTIMATE_FROM
from flowmesh_core.machine.model import Attempt
from flowmesh_core.protocol.messages import EngineInstanceState, EngineVariant
from flowmesh_core.protocol.results import Artifact, Usage

_values = iter(range(10**6))


def started(world: World, resources: Resources | None = None) -> Attempt:
    """An attempt that was assigned now."""
    world.submit(plan(step("a", value=next(_values), resources=resources)))
    world.tick()
    return next(reversed(world.machine.state.attempts.values()))


def ran(world: World, run_s: float, *, after_s: float, times: int = 1, peak_mib: int = 0) -> None:
    """Attempts end that say they ran for ``run_s``, ``after_s`` seconds after their assignment."""
    for _ in range(times):
        attempt = started(world)
        world.now += after_s
        world.finish(attempt.attempt_id, usage=Usage(run_s=run_s, peak_memory_mib=peak_mib))


def estimate_s(world: World, resources: Resources | None = None) -> float:
    attempt = started(world, resources)
    model, key = world.machine.state.model, CostKey.of(attempt.info)
    found = model.predict(key, attempt.shape.device_class, attempt.action.spec.work).seconds
    world.finish(attempt.attempt_id, usage=Usage(run_s=found))
    return found


def unlearned(world: World, figure: str) -> int:
    return world.machine.state.figures.not_learned["default", figure]


def joined() -> World:
    world = World()
    world.join("w", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
    return world


def test_first_reports_count_however_far_off_the_prior_is() -> None:
    for run_s in (0.001, 1000.0):
        world = joined()
        ran(world, run_s, after_s=run_s, times=ESTIMATE_FROM)
        assert 0.5 * run_s <= estimate_s(world) <= 2 * run_s
        assert not unlearned(world, "run")


@pytest.mark.parametrize(("shape", "alone_s"), [({"cpus": 1}, 10.0), ({"cpus": 2}, 20.0)])
def test_what_other_engines_took_of_a_device_is_not_learned(shape, alone_s) -> None:
    world = World()
    world.join("w", **shape)
    for _ in range(20):
        attempts = [
            started(world, resources=resources)
            for resources in (Resources(memory_mib=100), Resources(memory_mib=200))
        ]
        assert len({a.info.signature for a in attempts}) == 2, "two engines on one worker"
        world.now += 20.0
        for attempt in attempts:
            world.finish(attempt.attempt_id, usage=Usage(run_s=20.0))
    assert estimate_s(world, resources=Resources(memory_mib=100)) == pytest.approx(alone_s, rel=0.2)


def test_a_report_far_below_the_estimate_counts_only_if_little_time_has_passed() -> None:
    world = joined()
    ran(world, 10.0, after_s=10.0, times=20)
    before_s = estimate_s(world)
    ran(world, 0.01, after_s=10.0, times=20)
    assert unlearned(world, "run") == 20
    assert estimate_s(world) == before_s
    ran(world, 0.01, after_s=0.02, times=20)
    assert unlearned(world, "run") == 20
    assert estimate_s(world) < before_s / 10


def test_a_report_far_above_the_estimate_counts_only_if_so_much_time_has_passed() -> None:
    world = joined()
    ran(world, 0.1, after_s=0.1, times=20)
    before_s = estimate_s(world)
    ran(world, 4.0, after_s=0.1, times=20)
    assert unlearned(world, "run") == 20
    assert estimate_s(world) == before_s
    ran(world, 4.0, after_s=4.1, times=20)
    assert unlearned(world, "run") == 20
    assert estimate_s(world) > 10 * before_s


def test_a_report_shorter_than_any_estimate_counts_however_much_time_has_passed() -> None:
    world = joined()
    ran(world, 0.001, after_s=0.001, times=ESTIMATE_FROM)
    ran(world, 5e-6, after_s=1e-5, times=20)
    ran(world, 5e-6, after_s=10.0, times=20)
    assert not unlearned(world, "run")


def test_an_estimate_made_20_times_too_low_by_false_reports_is_corrected_by_honest_ones() -> None:
    world = joined()
    ran(world, 0.5, after_s=10.0, times=ESTIMATE_FROM)
    assert estimate_s(world) < 1.0
    ran(world, 10.0, after_s=10.2, times=20)
    assert 5.0 <= estimate_s(world) <= 20.0


def test_a_peak_of_memory_counts_within_the_device_and_near_what_was_learned_or_reserved() -> None:
    world = joined()
    ran(world, 1.0, after_s=1.0, peak_mib=100)
    attempt = started(world)
    model, key = world.machine.state.model, CostKey.of(attempt.info)
    device = attempt.shape.device_class
    world.finish(attempt.attempt_id)
    too_much = int(attempt.shape.device_memory_mib * 1.3)
    for peak_mib in (too_much, 10**9):
        ran(world, 1.0, after_s=1.0, peak_mib=peak_mib)
    assert unlearned(world, "memory") == 2
    assert model.memory_mib(key, device) <= 100
    ran(world, 1.0, after_s=1.0, peak_mib=800)
    assert model.memory_mib(key, device) == 800


def loaded(world: World, attempt: Attempt, load_s: float, after_s: float) -> None:
    """A host of the attempt's signature loads, and says for how long it did."""
    signature, engine = attempt.info.signature, attempt.info.requirement.engine
    state = EngineInstanceState(signature, engine, "loading", 1, 64)
    world._sync("w", instances=(state,))
    world.now += after_s
    world._sync("w", instances=(EngineInstanceState(signature, engine, "ready", 1, 64, load_s),))
    world._sync("w", instances=())


def test_a_load_time_far_off_counts_only_if_the_control_plane_observed_it() -> None:
    world = joined()
    attempt = started(world)
    model, key = world.machine.state.model, CostKey.of(attempt.info)

    def load_s() -> float:
        return model.load_s(key, attempt.shape.device_class, 0)

    loaded(world, attempt, 20.0, after_s=20.0)
    assert load_s() == pytest.approx(20.0)
    for said_s in (0.1, 1000.0):
        loaded(world, attempt, said_s, after_s=15.0)
    assert unlearned(world, "load") == 2
    assert load_s() == pytest.approx(20.0)
    loaded(world, attempt, 0.5, after_s=0.6)
    assert unlearned(world, "load") == 2
    assert load_s() < 20.0


def woke(world: World, attempt: Attempt, wake_s: float, after_s: float) -> None:
    """The host of the attempt's signature was asleep, and wakes."""
    signature, engine = attempt.info.signature, attempt.info.requirement.engine
    asleep = EngineInstanceState(signature, engine, "closing", 1, 64, 20.0, asleep=True)
    world._sync("w", instances=(asleep,))
    waking = EngineInstanceState(signature, engine, "loading", 1, 64, 20.0)
    world._sync("w", instances=(waking,))
    world.now += after_s
    ready = EngineInstanceState(signature, engine, "ready", 1, 64, 20.0, wake_s=wake_s)
    world._sync("w", instances=(ready,))


def test_a_wake_is_learned_as_a_wake_and_leaves_the_time_of_loading() -> None:
    world = joined()
    attempt = started(world)
    model, key = world.machine.state.model, CostKey.of(attempt.info)
    device = attempt.shape.device_class
    loaded(world, attempt, 20.0, after_s=20.0)
    before_s = model.load_s(key, device, 0)
    woke(world, attempt, 0.4, after_s=0.4)
    assert model.wake_s(key, device, 0) == pytest.approx(0.4)
    assert model.load_s(key, device, 0) == before_s
    assert world.machine.state.figures.wakes["default"] == [1.0, 0.4]
    woke(world, attempt, 900.0, after_s=1.0)
    assert unlearned(world, "wake") == 1
    assert model.wake_s(key, device, 0) == pytest.approx(0.4)


def test_what_an_attempt_waited_for_a_wake_teaches_no_time_of_loading() -> None:
    world = joined()
    attempt = started(world)
    model, key = world.machine.state.model, CostKey.of(attempt.info)
    device = attempt.shape.device_class
    loaded(world, attempt, 20.0, after_s=20.0)
    woke(world, attempt, 0.4, after_s=0.4)
    before_s = model.load_s(key, device, 0)
    world.now += 1.4
    world.finish(attempt.attempt_id, usage=Usage(run_s=1.0, load_s=0.4))
    assert model.load_s(key, device, 0) == before_s


GB = 10**9
WEIGHTS = Artifact("model", digest_bytes(b"w"), digest_bytes(b"w"), GB)


def fetched(world: World, fetched_bytes: int, fetch_s: float, *, after_s: float) -> None:
    """An attempt ends that needed a model of 1 GB and says that so much came in ``fetch_s``."""
    model = Edge("model", "model", (ArtifactSource("model", f"cas:{WEIGHTS.blob}"),))
    ask = replace(step("a", model, uses=ASK, value=next(_values)), fields={"dtype": "float32"})
    world.submit(plan(ask), artifacts=(WEIGHTS,))
    world.tick()
    attempt = next(reversed(world.machine.state.attempts.values()))
    assert attempt.action.spec.work.component_bytes == GB
    world.now += after_s
    usage = Usage(run_s=0.1, fetch_s=fetch_s, fetched_bytes=fetched_bytes)
    world.finish(attempt.attempt_id, usage=usage)


def fetch_s(world: World) -> float:
    return world.machine.state.model.fetch_s(GB, "default")


def test_a_slow_network_is_learned_from_one_fetch_and_counts_for_its_pool_only() -> None:
    world = joined()
    before_s = fetch_s(world)
    fetched(world, GB, 60.0, after_s=70.0)
    assert fetch_s(world) == pytest.approx(60.0)
    assert world.machine.state.model.fetch_s(GB, "other") == before_s
    assert not unlearned(world, "fetch")


def test_an_attempt_that_began_at_a_checkpoint_teaches_the_network_too() -> None:
    world = joined()
    attempt = started(world)
    world.now += 3.0
    usage = Usage(run_s=0.1, fetch_s=3.0, fetched_bytes=GB, resumed=True)
    world.finish(attempt.attempt_id, usage=usage)
    assert fetch_s(world) == pytest.approx(3.0)


def test_a_fetch_that_took_longer_than_the_attempt_is_not_learned() -> None:
    world = joined()
    before_s = fetch_s(world)
    fetched(world, GB, 4.0, after_s=3.0)
    assert unlearned(world, "fetch") == 1
    assert fetch_s(world) == before_s


def test_a_network_far_off_counts_only_if_the_control_plane_saw_these_seconds() -> None:
    world = joined()
    before_s = fetch_s(world)
    fetched(world, GB, 0.1, after_s=10.0)
    assert unlearned(world, "fetch") == 1
    assert fetch_s(world) == before_s
    fetched(world, GB, 0.1, after_s=0.5)
    assert unlearned(world, "fetch") == 1
    assert fetch_s(world) == pytest.approx(0.1)


def test_far_more_bytes_than_the_attempt_needs_are_not_believed() -> None:
    world = joined()
    before_s = fetch_s(world)
    fetched(world, 1 << 50, 10.0, after_s=11.0)
    assert unlearned(world, "fetch") == 1
    assert fetch_s(world) == before_s


def test_what_nothing_was_fetched_for_is_not_counted_as_not_learned() -> None:
    world = joined()
    fetched(world, 0, 0.0, after_s=10.0)
    assert not unlearned(world, "fetch")
    assert not world.machine.state.model.fetches.by_pool

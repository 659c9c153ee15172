"""A pool never takes a worker away that has a replica of a service, and grows for replicas."""

import random
from dataclasses import replace

import pytest
from tests.flowmesh_core.machine.test_serving import planned, replica, state_of
from tests.flowmesh_operator import pool_in_virtual_time
from tests.flowmesh_operator.pool_in_virtual_time import Sim

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


def check_that_workers_with_replicas_stay(*seeds: int) -> None:
    """Runs a pool under random loads; fails where it removes a worker that has a replica."""
    for seed in seeds:
        _run_pool(seed)


def _run_pool(seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim(
        maximum=rng.randrange(2, 5),
        stabilization_s=rng.choice((5.0, 30.0)),
        start_s=rng.choice((1.0, 20.0)),
        delay_s=rng.choice((0.0, 3.0)),
        rng=rng,
    )
    sim.submit(*[rng.choice((1.0, 60.0)) for _ in range(30)])
    workers = sim.world.machine.state.workers
    sim.run(200, until=lambda: len(workers) > 1)
    serving = rng.choice(sorted(workers))
    one, two = replica("team-a/ask", 500), replica("team-b/chat", 500)
    planned(sim.world, **{serving: (one,)})
    for _ in range(4):
        sim.submit(*[rng.choice((1.0, 5.0, 40.0)) for _ in range(rng.randrange(1, 12))])
        sim.run(rng.randrange(1, 90))
        if rng.random() < 0.5:
            sim.world.serves(serving, state_of(one, rng.choice(("fetching", "loading", "ready"))))
        if rng.random() < 0.3:
            sim.scaler = sim.new_scaler()  # another replica of the operator leads
    # Of the idle ones this would be removed first.
    newest = min(workers, key=lambda name: (-sim.pods[name].created_s, name))
    planned(sim.world, **{serving: (one,), newest: (two,)})
    sim.run(5000, until=sim.idle)
    sim.run(120)
    assert set(sim.pods) == {serving, newest}
    planned(sim.world)
    sim.world.serves(serving)
    sim.world.serves(newest)
    sim.run(120)
    assert sim.pods == {}


@pytest.mark.parametrize("seed", [*range(6), FRESH])
def test_under_random_loads_no_worker_with_a_replica_is_removed(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    check_that_workers_with_replicas_stay(seed)


def test_a_scaler_that_does_not_see_replicas_removes_their_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = pool_in_virtual_time.worker_seen
    monkeypatch.setattr(
        pool_in_virtual_time, "worker_seen", lambda worker: seen(replace(worker, replicas=0))
    )
    with pytest.raises(AssertionError, match="was taken away while it served"):
        check_that_workers_with_replicas_stay(*range(6))


def test_a_pool_grows_from_zero_for_a_service_and_says_why() -> None:
    sim = Sim(maximum=3, stabilization_s=30.0, serving=1)
    sim.run(40)
    assert sim.replicas == 1
    assert sim.reasons == ["replicas of services need 1 workers"]
    (pod,) = sim.pods
    planned(sim.world, **{pod: (replica("team-a/ask"),)})
    sim.run(120)
    assert list(sim.pods) == [pod]

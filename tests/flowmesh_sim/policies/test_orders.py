"""The orders of Halo and Helium, and how differently baselines place the same work."""

from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from flowmesh_core.fleet.ready import ReadyAction, WorkSize
from flowmesh_core.units import Digest
from flowmesh_sim.paper.observer import EvaluationObserver
from flowmesh_sim.policies.baselines import with_baseline
from flowmesh_sim.policies.filling import ON_DEVICE
from flowmesh_sim.policies.halo import operators_of
from flowmesh_sim.policies.halo_epoch import EpochWorker, plan_epoch
from flowmesh_sim.policies.helium import Prefix, depth_first
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

LARGE, SMALL = Digest("large"), Digest("small")
DEVICES = ("h100-nvl", "4090-48", "4090")
ALL_AT_ONCE = {"shapes": ["a-chain", "a-debate", "a-agents"], "runs": 12, "rows": 24}


def call(name: str, signature: Digest, path_s: float) -> ReadyAction:
    return ReadyAction(Digest(name), signature, "tenant", 0, 0.0, path_s, 0.0, WorkSize())


def names(actions: Any) -> list[str]:
    return [action.action_id for action in actions]


class Placed(EvaluationObserver):
    """Records the pool of every placement, and which engines of each device work together."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = Counter[tuple[str, str]]()
        self.most_models = 0

    def assigned(self, control: Any, c: Any) -> None:
        super().assigned(control, c)
        worker = control.machine.state.workers[c.worker]
        self.pools[c.worker, c.assignment.signature] += 1
        held = [a.action for a in worker.attempts.values()]
        models = {a.shown.signature for a in held if a.spec.contract.name.startswith(ON_DEVICE)}
        self.most_models = max(self.most_models, len(models))


def placed(name: str, signal: str = "hpa") -> Placed:
    document = {
        "name": "small",
        "pools": [{"name": f"{n}-{d}", "device": d, "workers": 3} for n, d in enumerate(DEVICES)],
        "load": [ALL_AT_ONCE],
        "control": {"tickS": 1.0, "syncIntervalS": 3.0},
    }
    observer = Placed()
    changed = with_baseline(document, name, signal=signal)
    result = Simulation(scenario_of(changed), seed=3, checker=observer).run()
    assert result.succeeded == result.runs
    return observer


def test_elastic_baselines_place_the_same_work_differently() -> None:
    found = {
        name: placed(name).pools
        for name in ("fifo-sharing", "static-routing", "random-placement", "halo", "helium")
    }
    for one, other in combinations(found, 2):
        assert found[one] != found[other], f"{one} and {other}"


def test_halo_runs_one_model_at_a_time_on_a_device_and_helium_several() -> None:
    assert placed("halo").most_models == 1
    assert placed("helium").most_models > 1


def test_halo_batches_the_calls_of_a_model_with_the_longest_path_first() -> None:
    calls = [call("a", LARGE, 9.0), call("b", SMALL, 8.0), call("c", LARGE, 7.0)]
    calls += [call("d", LARGE, 1.0)]
    found = operators_of(calls, {LARGE: 2, SMALL: 8})
    assert [(o.signature, names(o.actions)) for o in found] == [
        (LARGE, ["a", "c"]),
        (SMALL, ["b"]),
        (LARGE, ["d"]),
    ]


IDLE = EpochWorker(0.0, None)


@pytest.mark.parametrize(
    ("why", "workers", "seconds", "places"),
    [
        ("the model is loaded there", [IDLE, IDLE], [{0: (30.0, 10.0), 1: (0.0, 10.0)}], (1,)),
        ("a worker is faster", [IDLE, IDLE], [{0: (5.0, 10.0), 1: (5.0, 4.0)}], (1,)),
        (
            "waiting is shorter than loading elsewhere",
            [EpochWorker(12.0, SMALL), IDLE],
            [{0: (0.0, 10.0), 1: (30.0, 10.0)}],
            (0,),
        ),
        (
            "loading elsewhere is shorter than waiting",
            [EpochWorker(60.0, SMALL), IDLE],
            [{0: (0.0, 10.0), 1: (30.0, 10.0)}],
            (1,),
        ),
        (
            "it joins the batch of its model",
            [EpochWorker(60.0, LARGE), IDLE],
            [{0: (0.0, 10.0), 1: (30.0, 10.0)}],
            (0,),
        ),
        (
            "two operators go to two workers",
            [IDLE, IDLE],
            [{0: (0.0, 10.0), 1: (0.0, 10.0)}, {0: (0.0, 10.0), 1: (0.0, 10.0)}],
            (0, 1),
        ),
        (
            "a model is loaded once for both",
            [IDLE, IDLE],
            [{0: (30.0, 10.0), 1: (60.0, 10.0)}, {0: (30.0, 10.0), 1: (60.0, 10.0)}],
            (0, 0),
        ),
        ("no worker can run it", [IDLE], [{}], (None,)),
    ],
)
def test_halo_maps_operators_so_that_the_last_worker_is_done_soonest(
    why: str, workers: Any, seconds: Any, places: tuple[int | None, ...]
) -> None:
    operators = [(LARGE, each) for each in seconds]
    assert plan_epoch(workers, operators) == places, why


def test_helium_puts_equal_prefixes_next_to_each_other_and_the_longest_path_first() -> None:
    solve, judge = "solve", "judge"
    calls = [
        (Prefix(LARGE, solve, Digest("x")), call("a", LARGE, 3.0)),
        (Prefix(SMALL, solve, Digest("x")), call("b", SMALL, 5.0)),
        (Prefix(LARGE, judge, Digest("y")), call("c", LARGE, 9.0)),
        (Prefix(LARGE, solve, Digest("y")), call("d", LARGE, 4.0)),
        (Prefix(LARGE, solve, Digest("x")), call("e", LARGE, 2.0)),
        (Prefix(LARGE, judge, Digest("x")), call("f", LARGE, 1.0)),
    ]
    assert names(action for _, action in depth_first(calls)) == ["c", "f", "d", "a", "e", "b"]

"""The cost model learns what the networks of simulated pools carry from what attempts report."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from flowmesh_core.costmodel import CostModel, decode_model, encode_model
from flowmesh_core.costmodel.fetch_times import LEARNED_FROM_BYTES
from flowmesh_core.machine.events import Event, WorkerSynced
from flowmesh_sim.paper.observer import EvaluationObserver
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane

AT_ONCE = {"provisioning.pod_s": 0.0, "provisioning.lease_s": 0.0}


@dataclass(frozen=True)
class Fetch:
    """A large fetch as an attempt reported it, and the model when it had been learned."""

    size_bytes: int
    took_s: float
    after: CostModel


class FetchObserver(EvaluationObserver):
    """Records large fetches in the order of their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches: list[Fetch] = []

    def applied(self, control: "SimulatedControlPlane", event: Event) -> None:
        super().applied(control, event)
        for end in event.sync.ended if type(event) is WorkerSynced else ():
            if end.usage.fetched_bytes >= LEARNED_FROM_BYTES:
                model = decode_model(encode_model(control.machine.state.model))
                used = end.usage
                self.fetches.append(Fetch(used.fetched_bytes, used.fetch_s, model))


def chains(runs: int = 1, **pool: Any) -> FetchObserver:
    """Chains on models of 8B and 3B, on a pool that begins without workers."""
    elastic = {"device": "h100", "workers": 0, "maximum": 1, "autoscale": True}
    document = {
        "name": "chains",
        "pools": [{"name": "gpu", **elastic, **pool}],
        "load": [{"shapes": ["a-chain"], "runs": runs, "rows": 24}],
        "facts": AT_ONCE,
    }
    observer = FetchObserver()
    simulation = Simulation(scenario_of(document), seed=1, checker=observer)
    assert simulation.run().succeeded == runs
    return observer


@pytest.mark.parametrize("start", ["pod", "lease"])
def test_after_one_fetch_the_next_takes_what_is_expected(start: str) -> None:
    first, second, *_ = chains(start=start, prewarm=False).fetches
    assert first.size_bytes > 2 * second.size_bytes, "8B of weights, then 3B"
    expected_s = first.after.fetch_s(second.size_bytes, "gpu")
    assert expected_s == pytest.approx(second.took_s, rel=0.1)
    if start == "lease":
        assert expected_s > 4 * CostModel().fetch_s(second.size_bytes)


def test_weights_that_are_loaded_ahead_of_work_teach_through_attempts_that_wait_for_them() -> None:
    # The fetch for the prewarm list begins first, so all of the attempt's is that fetch.
    fetches = chains(start="lease").fetches
    assert fetches, "no attempt reported what came"
    expected_s = fetches[-1].after.fetch_s(10**10, "gpu")
    assert expected_s == pytest.approx(10**10 / 134e6, rel=0.1)

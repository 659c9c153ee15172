"""The frozen copy of the autoscaling signal that shipped when the baselines were committed."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.flowmesh_core.placement.builders import action, signature, snapshot, worker

from flowmesh_core.costmodel import CostModel
from flowmesh_core.errors import SpecError
from flowmesh_core.machine.state import State
from flowmesh_sim.policies.baselines import with_baseline
from flowmesh_sim.policies.signals import SIGNALS, ScaledPool, SignalDecision
from flowmesh_sim.policies.signals.frozen import FrozenSignal
from flowmesh_sim.policies.signals.frozen.backlog import FrozenBacklogs
from flowmesh_sim.policies.signals.frozen.engine_relocation import FrozenEngineRelocation
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

GB = 10**9
DEVICES = ("h100-nvl", "4090-48", "4090")
FALLING = {"kind": "decaying", "perMinute": 30.0, "toPerMinute": 0.2}


def document(**load: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "pools": [
            {"name": device, "device": device, "workers": 2, "disk": "reused"} for device in DEVICES
        ],
        "load": [{"shapes": ["group-a"], "runs": 20, "arrivals": FALLING, **load}],
        "control": {"tickS": 1.0, "syncIntervalS": 3.0},
    }


class Recorded(FrozenSignal):
    """Remembers when it changed the sizes of the pools."""

    changes: list[tuple[float, tuple[int, ...]]]

    def decide(self, state: State, pools: Sequence[ScaledPool], now_s: float) -> SignalDecision:
        decision = super().decide(state, pools, now_s)
        sizes = tuple(decision.sizes[device].workers for device in DEVICES)
        if not self.changes or self.changes[-1][1] != sizes:
            self.changes.append((now_s % 1e6, sizes))
        return decision


def test_the_frozen_signal_decides_what_it_decided_when_it_was_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A better signal must not change this; a change of what is simulated may."""
    monkeypatch.setitem(SIGNALS, "recorded", Recorded)
    monkeypatch.setattr(Recorded, "changes", [], raising=False)
    load = {"shapes": ["group-a", "group-b"], "runs": 30, "optimize": "cost"}
    changed = with_baseline(document(**load), "fifo", signal="recorded", keep_alive_s=30.0)
    changed["facts"] = {"sleep.host_limit_share": 0.0}  # no engine slept when it was frozen
    Simulation(scenario_of(changed), seed=1).run()
    assert Recorded.changes == [
        (5.0, (0, 0, 0)),
        (10.0, (0, 1, 0)),
        (15.0, (0, 2, 0)),
        (25.0, (0, 2, 1)),
        (60.0, (0, 2, 2)),
        (140.0, (1, 2, 2)),
        (220.0, (1, 2, 1)),
        (245.0, (0, 2, 1)),
        (280.0, (0, 2, 0)),
        (295.0, (0, 1, 0)),
        (390.0, (0, 2, 0)),
        (480.0, (0, 1, 0)),
    ]


def test_the_frozen_signal_knows_of_no_pools_network() -> None:
    llm = signature("llm", capacity=8, components={"m": 16 * GB}, work_unit="tokens")
    pools = [
        ScaledPool(name, worker("any", pool=name).shape, 0, 9, 1.0, 1.0, 1.0, frozenset(), 0, 0)
        for name in ("a", "b")
    ]
    model = CostModel()
    found = []
    for slow in ("", "a", "b"):
        if slow:
            model.observe_fetch(slow, 16 * GB, 120.0)
        view = snapshot([], [action("one", llm)], [llm])
        found.append(FrozenBacklogs(view, model, pools, (), FrozenEngineRelocation()).backlogs)
    assert found[0]["a"].actions == 1, "the first of equals"
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("pool", [{"spot": True}, {"machines": 1}])
def test_what_the_frozen_signal_does_not_know_is_refused(pool: dict[str, Any]) -> None:
    changed = with_baseline(document(), "fifo", signal="frozen")
    changed["pools"][0].update(pool)
    with pytest.raises(SpecError, match="the frozen one knows no"):
        scenario_of(changed)

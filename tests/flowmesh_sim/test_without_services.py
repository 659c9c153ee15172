"""Without a service, nothing of serving shows: traces and receipts are equal to the byte.

Worlds of several seeds are simulated as they are, with what the machine knows of replicas taken
out, and with everything of serving at work for an empty list of services.
"""

import dataclasses
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowmesh_control.serving.replica_scaler import ReplicaScaler
from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.machine import serving
from flowmesh_sim.control import services
from flowmesh_sim.control.services import SimServices
from flowmesh_sim.policies.signals import shipped_signal
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.soak.random_scenarios import random_document

SEEDS = [3, 8, 14, 27, pytest.param(random.randrange(1 << 30), id="fresh")]
SERVICE = {"name": "ask", "replicas": 1, "memoryMib": 200, "atS": 1.0, "untilS": 30.0}


class World:
    """Simulates the world of a seed; keeps its trace and its receipts."""

    def __init__(self, seed: int, folder: Path, **changes: Any) -> None:
        path = folder / "trace"
        document = {**random_document(seed), "services": [], **changes}
        simulation = Simulation(scenario_of(document), trace=path)
        simulation.run()
        self.trace = path.read_bytes()
        bucket = simulation.fabric.bucket
        records = [bucket.finals, bucket.lines, bucket.outputs, simulation.fabric.book]
        self.receipts = msgspec.json.encode(records, order="deterministic")


def without_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes out what the machine does about replicas, as if it knew nothing of services."""

    def refused(*_: Any) -> None:
        raise AssertionError("services are planned")

    nothing: dict[str, Any] = {
        "connected": lambda *_: None,
        "reported": lambda *_: None,
        "pinned_mib": lambda _: {},
        "count": lambda _: 0,
        "activities": lambda _: {},
        "idle_shares": refused,
        "metered": lambda *_: None,
        "plan_changed": refused,
        "plan_is_current": refused,
    }
    for name, function in nothing.items():
        monkeypatch.setattr(serving, name, function)
    monkeypatch.setattr(SimServices, "__init__", lambda *_: None)


def with_empty_serving(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has workers serve, the planner plan, and pools read its floor, all for no service.

    Returns:
        The number of plans, one in the list for each.
    """
    plans: list[int] = []
    around, plan = Simulation._around, ReplicaScaler.plan

    def planned(scaler: ReplicaScaler, *given: Any) -> Any:
        made = plan(scaler, *given)
        plans.append(len(made.workers))
        return made

    def began(made: SimServices, fabric: Any, _: Any) -> None:
        made._fabric, made._specs, made._scaler, made.counts = fabric, (), None, []
        fabric.engine.after(services.PLAN_EVERY_S, made._plan)

    monkeypatch.setattr(SimServices, "__init__", began)
    monkeypatch.setattr(ReplicaScaler, "plan", planned)
    monkeypatch.setattr(
        Simulation, "_around", lambda made: dataclasses.replace(around(made), serves=True)
    )
    monkeypatch.setattr(
        shipped_signal,
        "signal_of",
        lambda seen, model, views, *more: signal_of(
            seen, model, views, *more, serving={view.name: 0 for view in views}
        ),
    )
    return plans


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_traces_and_receipts_do_not_depend_on_what_serves_no_service(
    seed: int, tmp_path: Path
) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    usual = World(seed, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        without_serving(patch)
        absent = World(seed, tmp_path)
    assert absent.trace == usual.trace
    assert absent.receipts == usual.receipts
    with pytest.MonkeyPatch.context() as patch:
        with_empty_serving(patch)
        empty = World(seed, tmp_path)
    # A worker that can serve says in its hello that it has no replica.
    assert b',"replicas":[]' in empty.trace
    assert empty.trace.replace(b',"replicas":[]', b"") == usual.trace
    assert empty.receipts == usual.receipts


def test_a_service_is_seen_in_a_trace_and_cannot_be_planned_without_serving(
    tmp_path: Path,
) -> None:
    usual, served = World(3, tmp_path), World(3, tmp_path, services=[SERVICE])
    assert served.trace != usual.trace
    assert served.receipts != usual.receipts


def test_a_planner_that_sends_workers_what_they_have_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = World(3, tmp_path)
    plans = with_empty_serving(monkeypatch)
    monkeypatch.setattr(services, "plan_is_current", lambda *_: False)
    assert World(3, tmp_path).trace.replace(b',"replicas":[]', b"") != usual.trace
    assert plans, "the planner has run"

"""The checker finds every kind of violation, in small simulations."""

from typing import Any

import pytest

from flowmesh_core.errors import InvariantError
from flowmesh_core.machine.state import State
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.soak.checked_world import WorldOutcome, run_checked_world


def world(
    shapes: list[str], runs: int = 1, *, device: str = "cpu", workers: int = 1, **changes: Any
) -> Simulation:
    load = {"shapes": shapes, "runs": runs, **changes.pop("load", {})}
    pool = {"name": "p", "device": device, "workers": workers, **changes.pop("pool", {})}
    document = {"name": "t", "pools": [pool], "load": [load], **changes}
    return Simulation(scenario_of(document), checker=Checker(every=1))


def _caught(seeds: range) -> WorldOutcome | None:
    return next((o for seed in seeds if (o := run_checked_world(seed)).broken), None)


def test_money_that_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_core.machine import billing

    real = billing.settle

    def settle(state: State, *args: Any, **kwargs: Any) -> dict[str, int]:
        state.book.fabric_nanousd += 1
        return real(state, *args, **kwargs)

    monkeypatch.setattr(billing, "settle", settle)
    found = _caught(range(3))
    assert found is not None
    assert "money" in found.broken


def test_a_result_that_is_published_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_sim.models.store import SimStore

    real = SimStore.publish

    def publish(self: SimStore, key: Any, result: Any, **how: Any) -> Any:
        self.results.pop((key.scope, key.action_id), None)
        return real(self, key, result, **how)

    monkeypatch.setattr(SimStore, "publish", publish)
    found = _caught(range(30))
    assert found is not None
    assert "published twice" in found.broken


def test_the_use_of_results_of_other_scopes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_sim.models.store import SimStore

    real = SimStore.look_up

    def look_up(self: SimStore, key: Any, scopes: Any, *rest: Any) -> Any:
        return real(self, key, [*scopes, "ns-team-0", "ns-team-1", "ns-team-2"], *rest)

    monkeypatch.setattr(SimStore, "look_up", look_up)
    load = {"rows": 40, "variants": 1, "tenants": 3, "arrivals": {"kind": "every", "perMinute": 20}}
    with pytest.raises(InvariantError, match="is of scopes"):
        world(["mixed", "map-stream"], 12, sharing="private", load=load).run()


def test_an_overcommitted_device_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.placement.capacity import WorkerCapacity

    real = WorkerCapacity.unclaimed_mib
    monkeypatch.setattr(WorkerCapacity, "unclaimed_mib", lambda self: real(self) + 60_000)
    with pytest.raises(InvariantError, match="over-committed"):
        world(["group-a"], 4, device="4090", load={"variants": 50}).run()


def test_a_run_that_no_attempt_continues_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_core.machine import actions

    monkeypatch.setattr(actions, "back_to_ready", lambda *_: None)
    faults = [{"kind": "crash", "atS": 3.0, "worker": "p-0001"}]
    load = {"rows": 40, "options": {"steps": 1}}
    with pytest.raises(InvariantError, match="runs without an attempt"):
        world(["steps"], 1, faults=faults, load=load, limitS=600).run()


def test_a_run_that_has_not_ended_at_the_end_of_the_simulation_is_lost() -> None:
    with pytest.raises(InvariantError, match="have not ended after 5 s"):
        world(["steps"], 1, load={"rows": 40}, limitS=5).run()


def test_an_attempt_that_was_never_sent_to_its_worker_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_sim.control.gateway import SimGateway

    monkeypatch.setattr(SimGateway, "assign", lambda *_: None)
    with pytest.raises(InvariantError, match="was never told of"):
        world(["noop-flat"], load={"rows": 1}).run()


def test_a_reservation_that_is_not_given_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_core.machine import billing

    monkeypatch.setattr(billing, "release", lambda *_: None)
    with pytest.raises(InvariantError, match="nano-dollars are reserved, for attempts"):
        world(["sleepers"], load={"rows": 2}).run()


def test_a_tenant_that_is_charged_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_core.placement.fair_share import FairShare

    real = FairShare.charge
    monkeypatch.setattr(FairShare, "charge", lambda s, t, n, now: real(s, t, 2 * n, now))
    with pytest.raises(InvariantError, match="of late, its share says"):
        world(["sleepers"], 2, load={"rows": 3, "variants": 9}).run()


def test_a_tenant_that_is_served_before_one_that_paid_less_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.placement.cycle import SchedulingCycle

    real = SchedulingCycle.__init__

    def upside_down(self: SchedulingCycle, *given: Any) -> None:
        real(self, *given)
        self.virtual_time = {t: -v for t, v in self.virtual_time.items()}

    load = {"rows": 4, "variants": 99, "tenants": 3}
    assert world(["b-sft"], 9, device="h100-nvl", load=load).run().succeeded == 9
    monkeypatch.setattr(SchedulingCycle, "__init__", upside_down)
    with pytest.raises(InvariantError, match=r"and waits, while team-. is served"):
        world(["b-sft"], 9, device="h100-nvl", load=load).run()


def test_an_ended_worker_that_the_control_plane_still_counts_on_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_sim.control.gateway import SimGateway

    monkeypatch.setattr(SimGateway, "watch", lambda _: None)
    faults = [{"kind": "crash", "atS": 1.0, "worker": "p-0002"}]
    load = {"rows": 400, "options": {"steps": 1}}
    with pytest.raises(InvariantError, match="has ended, and the control plane still counts on it"):
        world(["steps"], 1, workers=2, faults=faults, load=load).run()


def test_an_attempt_that_runs_for_no_run_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_sim.control.gateway import SimGateway

    monkeypatch.setattr(SimGateway, "cancel", lambda *_: None)
    faults = [{"kind": "cancel", "atS": 2.0}]
    load = {"rows": 600, "variants": 9, "options": {"steps": 1}}
    with pytest.raises(InvariantError, match="for nobody"):
        world(["steps"], 2, workers=2, faults=faults, load=load).run()


def test_a_pool_with_more_workers_than_its_maximum_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.autoscaling.pool_size import PoolSize, PoolSizer

    monkeypatch.setattr(PoolSizer, "sizes", lambda *_: PoolSize(9, 9))
    pool = {"workers": 1, "maximum": 2, "autoscale": True}
    with pytest.raises(InvariantError, match="workers of at most 2"):
        world(["steps"], 1, pool=pool, load={"rows": 100}).run()


def test_a_collection_that_deletes_a_runs_inputs_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_sim.control import sweeper

    changes = {
        "faults": [{"kind": "collect", "atS": 200.0}],
        "control": {"graceS": 100.0},
        "load": {"rows": 40, "variants": 1, "options": {"steps": 3}},
        "pool": {"hostMemoryMib": 131072},
    }
    facts = {"host_work.row_s": 10.0}
    assert world(["mixed"], 1, facts=facts, **changes).run().succeeded == 1
    monkeypatch.setattr(sweeper, "live_artifacts", lambda _: [])
    with pytest.raises(InvariantError, match="a collection took"):
        world(["mixed"], 1, facts=facts, **changes).run()


def test_a_run_whose_receipt_differs_from_its_ledger_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.machine import ledger_counts

    real = ledger_counts.count

    def twice(run: Any, line: Any) -> int:
        real(run, line)
        return real(run, line)

    monkeypatch.setattr(ledger_counts, "count", twice)
    with pytest.raises(InvariantError, match="its ledger says"):
        world(["noop-flat"], load={"rows": 2}).run()


def test_an_attempt_that_a_worker_runs_and_the_control_plane_forgot_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.machine import billing

    real = billing.settle

    def settle(state: State, attempt: Any, *rest: Any) -> Any:
        found = real(state, attempt, *rest)
        worker = state.workers.get(attempt.worker)
        if worker is not None:
            worker.attempts[attempt.attempt_id] = attempt
        return found

    monkeypatch.setattr(billing, "settle", settle)
    with pytest.raises(InvariantError, match="which is over"):
        world(["noop-flat"], load={"rows": 2}).run()


def test_a_worker_agent_that_loses_an_attempt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowmesh_core.worker_agent.instances import Instances

    monkeypatch.setattr(Instances, "enqueue", lambda self, instance, attempt: None)
    with pytest.raises(InvariantError, match=r"worker agent: attempt .* is loading: expected"):
        world(["noop-flat"], load={"rows": 2}).run()


def test_a_dispatch_cancelled_in_the_turn_of_its_decision_violates_no_invariant() -> None:
    # A run's budget does not reach for its second action, and takes the first along.
    outcome = run_checked_world(1228)
    assert outcome.broken == ""
    assert outcome.runs > 10


def test_a_dispatch_that_the_machine_does_not_know_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowmesh_core.machine import attempts

    real = attempts.record_assignment

    def record_assignment(state: State, *args: Any) -> None:
        real(state, *args)
        state.attempts.popitem()

    monkeypatch.setattr(attempts, "record_assignment", record_assignment)
    with pytest.raises(InvariantError, match="is not known"):
        world(["noop-flat"]).run()


def test_a_world_without_prices_keeps_every_invariant_and_bills_nothing() -> None:
    load = {"rows": 40, "tenants": 3, "arrivals": {"kind": "every", "perMinute": 20}}
    simulation = world(["mixed"], 9, workers=2, pool={"priceUsdPerHour": 0}, load=load)
    simulation.run()
    control = simulation.fabric.control
    assert control is not None
    assert control.machine.state.book.bill_nanousd == 0
    assert control.machine.state.fair.paid(control.now_s())

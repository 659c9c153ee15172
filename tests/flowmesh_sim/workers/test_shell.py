"""The simulated worker's shell: what the agent's instructions come to in virtual time."""

from typing import Any

import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    Checkpoint,
    Desired,
    FailureReport,
    InputRef,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.worker_agent.events import DesiredReceived
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.workers.instance import SimInstance

STEPS = {"steps": 100, "stepSeconds": 1.0, "checkpointEvery": 40}
STARTED_S = 0.7
GRACE_S = 30.0


class Bench:
    """One worker without a control plane: what it should do is posted by hand."""

    def __init__(self) -> None:
        pools = [{"name": "small", "device": "cpu", "workers": 1}]
        load = [{"shapes": ["noop-flat"], "runs": 1}]
        document = {"name": "bench", "pools": pools, "load": load}
        self.simulation = Simulation(scenario_of(document))
        self.simulation.fabric.crash(1e9)
        (self.worker,) = self.simulation.provisioner.living()
        self.engine = self.simulation.fabric.engine
        self.store = self.simulation.fabric.store

    def assign(self, name: str, engine: str, *, resume: Any = None, **params: Any) -> None:
        (contract,) = [c for c in self.simulation.fabric.catalog if c.name == engine]
        assignment = Assignment(
            attempt_id=f"private/{name}",
            action_id=digest_bytes(name.encode()),
            signature=digest_bytes(engine.encode()),
            engine=engine,
            contract=contract.version,
            implementation=contract.implementation,
            params=params,
            fields={},
            inputs={},
            memory_mib=100,
            resume=resume,
        )
        self.desire(assign=(assignment,))

    def desire(self, **changes: Any) -> None:
        self.worker.shell.post(DesiredReceived(Desired(epoch=1, seq=1, **changes)))

    def pass_s(self, seconds: float) -> None:
        until_s = self.engine.now_s + seconds
        self.engine.at(until_s, lambda: None)
        self.engine.run(until_s=until_s, over=lambda: False)

    def end(self, name: str) -> AttemptEnd:
        return self.worker.agent.reports.ended[f"private/{name}"]

    def failure(self, name: str) -> FailureReport:
        failure = self.end(name).failure
        assert failure is not None
        return failure

    def checkpoint(self, name: str) -> Checkpoint:
        return self.worker.agent.reports.checkpoints[f"private/{name}"]

    def resume(self, name: str) -> InputRef:
        checkpoint = self.checkpoint(name)
        digest = checkpoint.digest
        return InputRef(Artifact("tree", digest, digest, checkpoint.size_bytes))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_attempt_takes_its_time_and_reports_its_use(bench: Bench) -> None:
    bench.assign("a", "test.steps", **STEPS)
    bench.pass_s(STARTED_S + 100.0 - 0.1)
    assert not bench.worker.agent.reports.ended
    bench.pass_s(0.2)
    end = bench.end("a")
    assert end.failure is None
    assert end.usage.run_s == pytest.approx(100.0)
    assert end.usage.load_s == pytest.approx(STARTED_S)
    assert end.usage.units == 100
    assert end.usage.joules > 0.0


def test_a_draining_worker_returns_attempts_with_checkpoints_at_once(bench: Bench) -> None:
    bench.assign("a", "test.steps", **STEPS)
    bench.pass_s(10.0)
    bench.worker.drain()
    assert bench.failure("a").kind == FailureKind.DRAINED
    assert bench.checkpoint("a").done == pytest.approx((10.0 - STARTED_S) / 100.0)


def test_an_attempt_without_checkpoints_has_the_whole_grace_period(bench: Bench) -> None:
    bench.assign("a", "test.sleep", seconds=100.0)
    bench.pass_s(10.0)
    bench.worker.drain()
    bench.pass_s(GRACE_S - 0.1)
    assert not bench.worker.agent.reports.ended
    bench.pass_s(0.2)
    assert bench.failure("a").kind == FailureKind.DRAINED


def test_an_attempt_begins_at_its_checkpoint(bench: Bench) -> None:
    bench.assign("a", "test.steps", **STEPS)
    bench.pass_s(STARTED_S + 45.0)
    assert bench.checkpoint("a").done == pytest.approx(0.4)
    resume = bench.resume("a")
    bench.desire(cancel=("private/a",))
    bench.assign("b", "test.steps", resume=resume, **STEPS)
    bench.pass_s(70.0)
    usage = bench.end("b").usage
    assert usage.resumed
    assert usage.run_s == pytest.approx(60.0)


def test_an_attempt_whose_checkpoint_is_lost_begins_at_the_start(bench: Bench) -> None:
    bench.assign("a", "test.steps", **STEPS)
    bench.pass_s(STARTED_S + 45.0)
    resume = bench.resume("a")
    bench.desire(cancel=("private/a",))
    bench.store.lose(resume.artifact.digest)
    bench.assign("b", "test.steps", resume=resume, **STEPS)
    bench.pass_s(5.0)
    assert bench.checkpoint("b").spoiled == (resume.artifact.digest,)
    bench.pass_s(100.0)
    usage = bench.end("b").usage
    assert not usage.resumed
    assert usage.run_s == pytest.approx(100.0)


def test_a_cancelled_attempt_stops_at_once_and_its_energy_counts(bench: Bench) -> None:
    bench.assign("a", "test.sleep", seconds=100.0)
    bench.pass_s(10.0)
    bench.desire(cancel=("private/a",))
    assert bench.failure("a").kind == FailureKind.CANCELLED
    assert bench.end("a").usage.joules > 0.0
    (host,) = bench.worker.shell.hosts.values()
    assert not host.running


@pytest.mark.parametrize("kind", [FailureKind.HOST_CRASHED, FailureKind.OUT_OF_MEMORY])
def test_attempts_fail_with_what_ended_their_host(bench: Bench, kind: FailureKind) -> None:
    bench.assign("a", "test.sleep", seconds=100.0)
    bench.pass_s(10.0)
    (host,) = bench.worker.shell.hosts.values()
    host.exit(FailureReport(kind.value, "it was struck"))
    assert bench.failure("a").kind == kind
    assert not bench.worker.shell.hosts


def test_outputs_are_lost_with_their_host_while_they_are_uploaded(bench: Bench) -> None:
    bench.assign("a", "model.import")
    bench.pass_s(5.0)
    assert bench.worker.agent.reports.progress["private/a"].phase == "storing"
    (host,) = bench.worker.shell.hosts.values()
    host.exit()
    bench.pass_s(1000.0)
    assert bench.failure("a").kind == FailureKind.PREEMPTED


def test_outputs_stay_on_the_workers_disk(bench: Bench) -> None:
    bench.assign("a", "model.import")
    bench.pass_s(1000.0)
    end = bench.end("a")
    assert end.failure is None
    assert end.usage.put_s > 1.0
    (model,) = end.outputs.values()
    assert model.digest in bench.worker.disk.weights
    assert model.digest in {c.digest for c in bench.worker.components()}


def test_a_worker_that_has_ended_receives_no_messages(bench: Bench) -> None:
    bench.assign("a", "test.sleep", seconds=100.0)
    bench.pass_s(10.0)
    bench.worker.die()
    bench.pass_s(200.0)
    assert not bench.worker.agent.reports.ended
    assert bench.worker.left_s == 10.0


@pytest.mark.parametrize(("holds_open", "expected_s"), [(True, 0.0), (False, 12.0)])
def test_the_first_host_imports_while_the_weights_are_fetched(
    monkeypatch: pytest.MonkeyPatch, holds_open: bool, expected_s: float
) -> None:
    started_s: list[float] = []
    start = SimInstance.start

    def started(self: SimInstance, start_s: float, load_s: float, loaded: Any) -> None:
        started_s.append(start_s)
        start(self, start_s, load_s, loaded)

    monkeypatch.setattr(SimInstance, "start", started)
    pool = {"name": "gpu", "device": "h100", "workers": 1, "prewarm": holds_open}
    load = {"shapes": ["b-full-sft"], "runs": 1, "rows": 12}
    facts = {"network.datacenter_bytes_per_s": 1e8}  # slower than the import
    document = {"name": "one", "pools": [pool], "load": [load], "facts": facts}
    simulation = Simulation(scenario_of(document))
    assert simulation.run().succeeded == 1
    assert started_s[0] == expected_s

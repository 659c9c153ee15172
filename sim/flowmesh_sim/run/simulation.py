"""Simulates a scenario: assembles its parts, runs them and returns the result."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from flowmesh_api.v1.enums import Phase
from flowmesh_control.settings import ControlSettings
from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.machine.settings import Settings
from flowmesh_core.units import NANO_PER_USD
from flowmesh_sim.control.fabric import EPOCH_S, SimulatedFabric
from flowmesh_sim.control.provisioner import Provisioner, SimPool
from flowmesh_sim.control.services import SimServices
from flowmesh_sim.faults.faults import Faults
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.kernel.event_trace import EventTrace
from flowmesh_sim.models.content import SimContents
from flowmesh_sim.models.devices import HardwareCatalog
from flowmesh_sim.models.download_rates import download_rates
from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.policies import Policy, policy_named
from flowmesh_sim.policies.signals import SIGNALS
from flowmesh_sim.run.arrivals import Workload
from flowmesh_sim.run.measurements import MeasuredMoment, Measures, SimulationResult, phases, spread
from flowmesh_sim.scenario import ControlSpec, Scenario
from flowmesh_sim.serving.service_calls import CallLoad, ServiceCalls
from flowmesh_sim.workers.context import WorkerContext

GIB = 1 << 30
SAMPLE_EVERY_S = 5.0


class LoadSource(Protocol):
    """A source of runs."""

    @property
    def remaining(self) -> int:
        """Runs that are not submitted yet."""
        ...


class Simulation:
    """One simulation of a scenario.

    Attributes:
        fabric: control plane, store and event queue.
        provisioner: the workers.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int | None = None,
        policy: Policy | None = None,
        checker: Checker | None = None,
        trace: Path | None = None,
        catalog: Catalog | None = None,
        duties: Callable[[HardwareCatalog, SimContents, Catalog], WorkModel] = WorkModel,
        model: bytes = b"",
    ) -> None:
        """Assembles the parts; no virtual time passes.

        Args:
            scenario: what to simulate.
            seed: overrides the scenario's.
            policy: overrides the scenario's.
            checker: of the invariants; by default every 1,000 events and at the end.
            trace: a file for the events.
            catalog: overrides the built-in engines.
            duties: creates the model of attempts' work.
            model: the encoded state of a trained cost model.
        """
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        facts = read_constants().changed(scenario.facts)
        self.hardware = HardwareCatalog(facts)
        self.checker = checker or Checker(every=1000)
        self.measures = Measures()
        self.trace = EventTrace(trace)
        self.fabric = SimulatedFabric(
            facts=facts,
            seed=self.seed,
            settings=_settings(scenario.control),
            tick_s=scenario.control.tick_s,
            policy=policy or policy_named(scenario.policy, scenario.policy_options),
            trace=self.trace,
            checker=self.checker,
            measures=self.measures,
            grace_s=scenario.control.grace_s,
            catalog=catalog or Catalog(contracts()),
        )
        self.fabric.bucket.model = model
        fabric = self.fabric
        self.measures.now_s = lambda: fabric.engine.now_s
        fabric.start()
        self.calls = _service_calls(fabric, scenario)
        fabric.calls = None if self.calls is None else self.calls.fabric
        self.duties = duties(self.hardware, fabric.store.contents, fabric.catalog)
        around = self._around()
        self.provisioner = Provisioner(
            fabric,
            [SimPool(p, fabric, self.hardware, around) for p in scenario.pools],
            SIGNALS[scenario.signal](),
        )
        self.checker.provisioner = self.provisioner
        self.loads: list[LoadSource] = [
            Workload(fabric, self.hardware, spec, number=n, sharing=scenario.sharing)
            for n, spec in enumerate(scenario.load)
        ]
        self.services = SimServices(fabric, scenario.services)
        self.faults = Faults(fabric, self.provisioner, scenario.faults)
        fabric.engine.after(0.0, self._sample)

    def _around(self) -> WorkerContext:
        fabric = self.fabric
        network, start = fabric.facts.group("network"), fabric.facts.group("start")
        catalog = {c.name: c for c in fabric.catalog}
        return WorkerContext(
            engine=fabric.engine,
            store=fabric.store,
            duties=self.duties,
            network=fabric,
            observer=self.measures,
            applied=self.checker.agent_applied,
            capacity=lambda engine: catalog[engine].capacity,
            needs_device=lambda engine: catalog[engine].needs_gpu_class == "accelerator",
            unload_s=(start.unload_s, start.host_unload_s),
            grace_s=fabric.facts.group("provisioning").grace_s,
            epoch_s=EPOCH_S,
            disk_bytes=int(network.disk_gib * GIB),
            downloads=download_rates(fabric.facts, "pod"),
            upload_bytes_per_s=network.upload_bytes_per_s,
            request_s=network.request_s,
            latency_s=network.message_s,
            serves=bool(self.scenario.services),
            calls=self.calls,
        )

    @property
    def over(self) -> bool:
        """Whether all runs are submitted and have ended, and all calls."""
        if self.calls is not None and not self.calls.has_ended:
            return False
        return not self.fabric.open and not any(load.remaining for load in self.loads)

    def run(self) -> SimulationResult:
        """Simulates to the end.

        Raises:
            InvariantError: an invariant is violated, or a run was lost.
        """
        began = time.perf_counter()
        engine = self.fabric.engine
        engine.run(until_s=self.scenario.limit_s, over=lambda: self.over)
        ended_s = max((e for _, e in self.measures.statuses.values()), default=0.0)
        joules = self._settle()
        self.checker.at_end(self.fabric, limit_s=self.scenario.limit_s)
        if self.calls is not None:
            self.calls.fabric.check_ended()
        took_s = time.perf_counter() - began
        result = self._result(ended_s, joules)
        result.took_s = took_s
        result.events_per_s = engine.events / took_s if took_s else 0.0
        self.trace.close()
        return result

    def _settle(self) -> float:
        """Delivers the last messages; returns the joules of all workers."""
        engine = self.fabric.engine
        for worker in self.measures.workers:
            if not worker.gone:
                worker.measure()
        joules = sum(w.joules for w in self.measures.workers)
        quiet = engine.now_s + 5.0
        engine.run(until_s=quiet, over=self._quiet)
        return joules

    def _quiet(self) -> bool:
        control = self.fabric.control
        return control is not None and not control.machine.state.attempts

    def _sample(self) -> None:
        fabric = self.fabric
        if fabric.control is not None:
            state = fabric.control.machine.state
            self.measures.samples.append(
                MeasuredMoment(
                    fabric.engine.now_s,
                    len(state.workers),
                    len(state.ready),
                    len(state.attempts),
                    len(fabric.open),
                )
            )
        fabric.engine.after(SAMPLE_EVERY_S, self._sample)

    def _result(self, ended_s: float, joules: float) -> SimulationResult:
        fabric, measures = self.fabric, self.measures
        figures = measures.figures(fabric.submitted_s)
        began_s = min(fabric.submitted_s.values(), default=0.0)
        makespan_s = max(0.0, ended_s - began_s)
        minutes = makespan_s / 60.0 or 1.0
        book, by_phase = fabric.book, phases(figures)
        lived = [(w.left_s if w.gone else ended_s) - w.born_s for w in measures.workers]
        lifetime_s = sum(max(0.0, s) for s in lived)
        steps = sum(len(s.steps) for s, _ in measures.statuses.values())
        control = fabric.control
        return SimulationResult(
            scenario=self.scenario.name,
            seed=self.seed,
            policy=self.scenario.policy,
            runs=len(fabric.submitted_s),
            succeeded=by_phase[Phase.SUCCEEDED],
            failed=by_phase[Phase.FAILED],
            cancelled=by_phase[Phase.CANCELLED],
            makespan_s=makespan_s,
            latency_s=spread([f.latency_s for f in figures]),
            queueing_s=spread([f.queued_s for f in figures]),
            waiting_s=spread(measures.waits_s),
            usd=book.bill_nanousd / NANO_PER_USD,
            receipts_usd=book.receipts_nanousd / NANO_PER_USD,
            fabric_usd=book.fabric_nanousd / NANO_PER_USD,
            joules=joules,
            executed=book.executed,
            hits={
                "published": book.hits_published,
                "in-flight": book.hits_in_flight,
                "step-level": book.hits_step_level,
            },
            utilisation=sum(w.busy_s for w in measures.workers) / lifetime_s if lifetime_s else 0.0,
            worker_hours=lifetime_s / 3600.0,
            tasks_per_min=steps / minutes,
            executed_per_min=book.executed / minutes,
            runs_per_min=len(figures) / minutes,
            events=fabric.engine.events,
            decisions=control.decisions if control else 0,
            epochs=fabric.bucket.epoch,
            lost_workers=measures.lost,
            trace=self.trace.digest,
            every=figures,
            samples=measures.samples,
        )


def _service_calls(fabric: SimulatedFabric, scenario: Scenario) -> ServiceCalls | None:
    """Returns the calls of services; None where none gets any."""
    loads = {
        f"sim/{s.name}": CallLoad(s.at_s, **s.calls.model_dump())
        for s in scenario.services
        if s.calls is not None
    }
    return ServiceCalls(fabric.engine, fabric.dice, loads, scenario.routers) if loads else None


def _settings(spec: ControlSpec) -> ControlSettings:
    machine = replace(
        Settings(),
        watchdog_s=spec.watchdog_s,
        sync_window_s=spec.sync_window_s,
        replicas=spec.replicas,
        result_ttl_s=spec.result_ttl_s,
    )
    return replace(ControlSettings(), machine=machine, sync_interval_s=spec.sync_interval_s)


def simulate(
    scenario: Scenario, *, seed: int | None = None, trace: Path | None = None
) -> SimulationResult:
    """Simulates a scenario; equal scenarios and seeds give equal traces.

    Raises:
        InvariantError: an invariant is violated.
    """
    return Simulation(scenario, seed=seed, trace=trace).run()

"""Pools of simulated workers: started with a delay, drained, scaled by a signal."""

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import UNSET

from flowmesh_core.machine.events import CordonChanged, PrewarmPlanChanged
from flowmesh_core.machine.prewarm import prewarm_is_current
from flowmesh_core.protocol.messages import EngineVariant, WorkerShape
from flowmesh_core.units import Digest, nano_usd
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.models.devices import HardwareCatalog
from flowmesh_sim.models.download_rates import download_rates
from flowmesh_sim.policies.signals import ScaledPool, Signal
from flowmesh_sim.scenario import PoolSpec
from flowmesh_sim.workers.context import WorkerContext
from flowmesh_sim.workers.worker import SimWorker

if TYPE_CHECKING:
    from flowmesh_core.catalog.catalog import Catalog


class SimPool:
    """A pool of workers of one shape.

    Attributes:
        workers: the running ones; ``coming`` is the number that start or wait for a machine.
        waited_s: for each ordered worker, seconds from the order until its agent ran.
    """

    def __init__(
        self,
        spec: PoolSpec,
        fabric: SimulatedFabric,
        hardware: HardwareCatalog,
        around: WorkerContext,
    ) -> None:
        """Creates a pool without workers."""
        self.spec = spec
        self._fabric = fabric
        self._device = hardware.devices[spec.device]
        self._around = replace(
            around,
            downloads=download_rates(fabric.facts, spec.start),
            latency_s=around.latency_s if spec.latency_s is None else spec.latency_s,
        )
        self._times = fabric.facts.group("provisioning")
        self._rng = fabric.dice.stream(f"pool {spec.name}")
        self._count = 0
        self.workers: dict[str, SimWorker] = {}
        self.coming = 0
        self._without_machine = 0
        self.waited_s: list[float] = []
        self._disks: list[dict[Digest, int]] = []
        self.shape = self._shape(fabric.catalog)

    def _shape(self, catalog: "Catalog") -> WorkerShape:
        spec, device = self.spec, self._device
        offered = [c for c in catalog if not spec.engines or c.name in spec.engines]
        price = spec.price_usd_per_hour
        one = device.price_nanousd_h if price is None else nano_usd(price)
        return WorkerShape(
            name=spec.name,
            pool=spec.name,
            device_class=device.device_class,
            device_memory_mib=device.memory_mib if device.accelerator else spec.host_memory_mib,
            host_memory_mib=spec.host_memory_mib,
            cpus=spec.cpus,
            price_nanousd_per_hour=one * spec.devices,
            engines={c.name: c.versions for c in offered},
            devices=spec.devices,
            variants=tuple(
                EngineVariant(c.name, implementation, ("bfloat16", "float32"))
                for c in offered
                if c.identity_fields
                for implementation in (
                    ("vllm",) if "implementation" in c.identity_fields else ("",)
                )
            ),
            power_w=float(device.facts.tdp_w) * spec.devices,
            idle_w=float(device.facts.idle_w) * spec.devices,
            zone=spec.zone,
            labels=dict(spec.labels),
            allows_user_code=True,
            trust=spec.trust,
            spot=spec.spot or UNSET,
        )

    @property
    def start_s(self) -> float:
        """The expected seconds from an order until the agent connects."""
        t = self._times
        machine_s = {"pod": t.pod_s, "pull": t.pod_s + t.pull_s, "lease": t.lease_s}[
            self.spec.start
        ]
        return float(machine_s + t.agent_s)

    @property
    def local(self) -> frozenset[Digest]:
        """The digests on the next worker's disk."""
        return frozenset(self._disks[-1]) if self._disks else frozenset()

    def order(self) -> None:
        """Orders one more worker; it is billed from when its machine runs."""
        self.coming += 1
        on_machines = len(self.workers) + self.coming - self._without_machine
        if self.spec.machines is not None and on_machines > self.spec.machines:
            self._without_machine += 1
        else:
            self._start()

    def _start(self) -> None:
        delay_s = self.start_s * self._rng.uniform(0.8, 1.4)
        self.waited_s.append(delay_s)
        self._fabric.engine.after(delay_s, self._arrives)

    def _arrives(self) -> None:
        self.make(self._times.agent_s)

    def join(self) -> None:
        """Adds a worker that needs no start."""
        self.make()

    def make(self, paid_before_s: float = 0.0) -> SimWorker:
        """Starts a worker's process; ``paid_before_s`` is its machine's time before that."""
        self.coming = max(0, self.coming - 1)
        self._count += 1
        engine = self._fabric.engine
        name = f"{self.spec.name}-{self._count:04d}"
        worker = SimWorker(
            self._around,
            _named(self.shape, name),
            self._device,
            incarnation=f"{name}/{self._count}",
            billed_since_s=max(0.0, engine.now_s - paid_before_s),
            phase_s=self._rng.random(),
            on_gone=self._on_ended,
        )
        if self._disks:
            worker.disk.restore(self._disks.pop())
        self.workers[name] = worker
        self._fabric.measures.workers.append(worker)
        self._fabric.trace.add(engine.now_s, "worker", name)
        return worker

    def _on_ended(self, worker: SimWorker) -> None:
        self.workers.pop(worker.name, None)
        if self.spec.disk == "reused" and worker.draining:
            self._disks.append(dict(worker.disk.sizes))
        self._fabric.trace.add(self._fabric.engine.now_s, "gone", worker.name)
        if self._without_machine:
            self._without_machine -= 1
            self._start()

    def resize(self, wanted: int) -> None:
        """Orders missing workers, or withdraws orders and drains workers, idle ones first."""
        living = self._dispensable()
        have = len(living) + self.coming
        for _ in range(wanted - have):
            self.order()
        withdrawn = max(0, min(have - wanted, self._without_machine))
        self.coming -= withdrawn
        self._without_machine -= withdrawn
        for worker in living[: max(0, len(living) - wanted)]:
            worker.drain()

    def surplus(self, needed: int) -> set[str]:
        """Returns the workers to cordon: those beyond the number that is needed."""
        living = self._dispensable()
        return {worker.name for worker in living[: max(0, len(living) - needed)]}

    def _dispensable(self) -> list[SimWorker]:
        """Returns the running workers, those with the least state first, as the operator does."""
        living = [w for w in self.workers.values() if not w.draining]
        return sorted(living, key=lambda w: (w.attempts, w.warm_mib, w.name))


def _named(shape: WorkerShape, name: str) -> WorkerShape:
    from msgspec.structs import replace as changed  # noqa: PLC0415 - one name, two meanings

    return changed(shape, name=name)


class Provisioner:
    """Scales all pools, and has engines prewarmed, as a signal decides."""

    def __init__(self, fabric: SimulatedFabric, pools: list[SimPool], signal: Signal) -> None:
        """Starts the initial workers of every pool."""
        self._fabric = fabric
        self.pools = pools
        self._signal = signal
        for pool in pools:
            for _ in range(pool.spec.workers):
                if pool.spec.after_s:
                    fabric.engine.at(pool.spec.after_s, pool.join)
                else:
                    pool.make()
        self._declared = [p for p in pools if p.spec.autoscale or p.spec.prewarm]
        if self._declared:
            fabric.engine.after(signal.every_s, self._scale)

    def living(self) -> list[SimWorker]:
        """Returns every running worker, in order of pools and names."""
        return [w for pool in self.pools for _, w in sorted(pool.workers.items())]

    def _scale(self) -> None:
        self._fabric.engine.after(self._signal.every_s, self._scale)
        control = self._fabric.control
        if control is None:
            return
        now_s = control.now_s()
        state = control.machine.state
        decision = self._signal.decide(state, [_scaled(pool) for pool in self._declared], now_s)
        cordoned: set[str] = set()
        for pool in self._declared:
            size = decision.sizes.get(pool.spec.name)
            if size is not None:
                pool.resize(size.workers)
                cordoned |= pool.surplus(size.needed)
        if cordoned != state.cordoned:
            control.post(CordonChanged(frozenset(cordoned)))
        if not prewarm_is_current(state, decision.prewarm):
            control.post(PrewarmPlanChanged(dict(decision.prewarm)))


def _scaled(pool: SimPool) -> ScaledPool:
    spec = pool.spec
    most = spec.maximum or max(1, spec.workers)
    return ScaledPool(
        name=spec.name,
        shape=pool.shape,
        minimum=spec.minimum if spec.autoscale else most,
        maximum=most,
        start_s=pool.start_s,
        target_s=spec.target_s,
        keep_alive_s=spec.stabilization_s,
        local=pool.local,
        living=sum(not w.draining for w in pool.workers.values()),
        coming=pool.coming,
        is_scaled=spec.autoscale,
        prewarms=spec.prewarm,
    )

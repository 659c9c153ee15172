"""Faults: what strikes workers, the network, the store and the control plane, and when."""

from collections.abc import Callable, Sequence
from random import Random

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_sim.fabric import Fabric
from flowmesh_sim.provisioning import Provisioner
from flowmesh_sim.scenario import FaultSpec
from flowmesh_sim.worker import SimWorker

HOUR_S = 3600.0
LEAD_CHECKED_S = 5.0
"""A leader knows after at most so long that another one leads (``lead_check_s``)."""
OF_WORKERS = {"crash", "preempt", "silence", "cut", "slow", "host-crash"}


class Faults:
    """Schedules and does them.

    Attributes:
        struck: how many so far.
    """

    def __init__(
        self, fabric: Fabric, provisioner: Provisioner, specs: Sequence[FaultSpec]
    ) -> None:
        """Schedules every fault of the scenario."""
        self._fabric = fabric
        self._provisioner = provisioner
        self._spoiling: list[tuple[float, str]] = []
        self._rng = fabric.dice.stream("faults")
        self.struck = 0
        fabric.measures.spoil = self._spoil
        self._by_kind: dict[str, Callable[[FaultSpec], None]] = {
            "store-down": self._store_down,
            "store-errors": self._store_errors,
            "store-slow": self._store_slow,
            "lose-blob": self._lose_blob,
            "clock-step": self._clock_step,
            "control-crash": self._control_crash,
            "stale-leader": self._stale_leader,
            "engine-errors": self._engine_errors,
            "cancel": self._cancel,
        }
        for number, spec in enumerate(specs):
            if spec.at_s is not None:
                fabric.engine.at(spec.at_s, self.strike, spec)
            else:
                self._again(spec, fabric.dice.stream(f"fault {number}"))

    def _again(self, spec: FaultSpec, rng: Random) -> None:
        assert spec.per_hour is not None
        many = len(self._candidates(spec)) if spec.kind in OF_WORKERS else 1
        wait_s = rng.expovariate(spec.per_hour * max(1, many) / HOUR_S)

        def struck() -> None:
            self.strike(spec)
            self._again(spec, rng)

        self._fabric.engine.after(wait_s, struck)

    def strike(self, spec: FaultSpec) -> None:
        """Does a fault now."""
        self.struck += 1
        if spec.kind in OF_WORKERS:
            found = self._candidates(spec)
            if not found:
                return
            worker = self._rng.choice(found)
            self._fabric.trace.add(self._fabric.engine.now_s, "fault", (spec.kind, worker.name))
            self._on_worker(spec, worker)
            return
        self._fabric.trace.add(self._fabric.engine.now_s, "fault", (spec.kind, spec.for_s))
        self._by_kind[spec.kind](spec)

    def _candidates(self, spec: FaultSpec) -> list[SimWorker]:
        return [
            w
            for w in self._provisioner.living()
            if (not spec.pool or w.shape.pool == spec.pool)
            and (not spec.worker or w.name == spec.worker)
        ]

    # -- of workers ------------------------------------------------------------------------------

    def _on_worker(self, spec: FaultSpec, worker: SimWorker) -> None:
        engine = self._fabric.engine
        match spec.kind:
            case "crash":
                self._fabric.measures.lost += 1
                worker.die()
                self._replace(worker)
            case "preempt":
                worker.drain()
                self._replace(worker)
            case "silence":
                worker.dialling.link.held_until_s = engine.now_s + spec.for_s
            case "cut":
                worker.dialling.link.up = False
                worker.dialling.broken()
                engine.after(spec.for_s, _heal, worker)
            case "slow":
                worker.slow *= spec.factor
                worker.replan()
                engine.after(spec.for_s, _quicker, worker, spec.factor)
            case _:
                running = [lane for lane in worker.lanes if not lane.gone]
                if running:
                    said = f"the host was killed ({spec.kind})"
                    self._rng.choice(running).end(FailureReport(FailureKind.HOST_CRASHED, said))

    def _replace(self, worker: SimWorker) -> None:
        """A pool of a fixed size gets another one, as a Deployment would."""
        for pool in self._provisioner.pools:
            if pool.spec.name == worker.shape.pool and not pool.spec.autoscale:
                pool.order()

    # -- of the store ----------------------------------------------------------------------------

    def _store_down(self, spec: FaultSpec) -> None:
        store = self._fabric.store
        store.down = True
        self._fabric.engine.after(spec.for_s, _set, store, "down", False)

    def _store_errors(self, spec: FaultSpec) -> None:
        store = self._fabric.store
        store.refuses = spec.share
        self._fabric.engine.after(spec.for_s, _set, store, "refuses", 0.0)

    def _store_slow(self, spec: FaultSpec) -> None:
        store = self._fabric.store
        store.slow_s = spec.factor
        self._fabric.engine.after(spec.for_s, _set, store, "slow_s", 0.0)

    def _lose_blob(self, spec: FaultSpec) -> None:
        """A blob that some action made is gone; what users uploaded stays."""
        store = self._fabric.store
        made = sorted(
            {
                blob
                for result in store.results.values()
                for artifact in result.outputs.values()
                for blob in artifact.blobs()
                if blob in store.blobs
            }
        )
        if made:
            store.lose(self._rng.choice(made))

    # -- of the control plane --------------------------------------------------------------------

    def _clock_step(self, spec: FaultSpec) -> None:
        self._fabric.checker.clock_was_set()
        self._fabric.skew_s += spec.step_s

    def _control_crash(self, spec: FaultSpec) -> None:
        self._fabric.crash(spec.for_s)

    def _stale_leader(self, spec: FaultSpec) -> None:
        self._fabric.usurp(min(spec.for_s, LEAD_CHECKED_S))

    def _cancel(self, spec: FaultSpec) -> None:
        if self._fabric.open:
            self._fabric.cancel(self._rng.choice(sorted(self._fabric.open)))

    # -- of engines ------------------------------------------------------------------------------

    def _engine_errors(self, spec: FaultSpec) -> None:
        entry = (spec.share, spec.failure)
        self._spoiling.append(entry)
        self._fabric.engine.after(spec.for_s, self._spoiling.remove, entry)

    def _spoil(self, attempt_id: str) -> FailureReport | None:
        for share, kind in self._spoiling:
            if self._rng.random() < share:
                return FailureReport(kind, f"spoiled ({attempt_id[-8:]})")
        return None


def _heal(worker: SimWorker) -> None:
    worker.dialling.link.up = True


def _quicker(worker: SimWorker, factor: float) -> None:
    worker.slow /= factor
    if not worker.gone:
        worker.replan()


def _set(thing: object, name: str, value: float) -> None:
    setattr(thing, name, value)

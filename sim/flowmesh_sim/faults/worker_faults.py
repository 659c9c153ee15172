"""Faults of one worker: its process, its hosts, its network, its clock."""

from collections.abc import Callable
from random import Random

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.control.provisioner import Provisioner
from flowmesh_sim.scenario import FaultSpec
from flowmesh_sim.workers.worker import SimWorker

Strike = Callable[[FaultSpec, SimWorker], None]


class WorkerFaults:
    """Injects the faults of workers.

    Attributes:
        by_kind: functions by the fault's kind.
    """

    def __init__(self, fabric: SimulatedFabric, provisioner: Provisioner, rng: Random) -> None:
        self._fabric = fabric
        self._provisioner = provisioner
        self._rng = rng
        self.by_kind: dict[str, Strike] = {
            "crash": self._crash,
            "preempt": self._preempt,
            "silence": self._silence,
            "one-way": self._one_way,
            "cut": self.cut,
            "twice": self._twice,
            "overtaken": self._overtaken,
            "worker-clock": self._clock,
            "slow": self._slow,
            "host-crash": self._host_crash,
            "out-of-memory": self._out_of_memory,
            "hub-crash": self._hub_crash,
        }

    # -- its process and hosts -------------------------------------------------------------------

    def _crash(self, spec: FaultSpec, worker: SimWorker) -> None:
        self._fabric.measures.lost += 1
        self._replace(worker)
        worker.die()

    def _preempt(self, spec: FaultSpec, worker: SimWorker) -> None:
        self._replace(worker)
        worker.drain()

    def _replace(self, worker: SimWorker) -> None:
        """Orders a replacement in a pool of fixed size, once, as a Deployment does."""
        if worker.draining:
            return
        for pool in self._provisioner.pools:
            if pool.spec.name == worker.shape.pool and not pool.spec.autoscale:
                pool.order()

    def _slow(self, spec: FaultSpec, worker: SimWorker) -> None:
        worker.slow *= spec.factor
        worker.replan()
        self._fabric.engine.after(spec.for_s, _end_slowdown, worker, spec.factor)

    def _host_crash(self, spec: FaultSpec, worker: SimWorker) -> None:
        self._end_host(worker, FailureKind.HOST_CRASHED, "the host was killed")

    def _hub_crash(self, spec: FaultSpec, worker: SimWorker) -> None:
        worker.shell.hub.fail()

    def _out_of_memory(self, spec: FaultSpec, worker: SimWorker) -> None:
        self._end_host(worker, FailureKind.OUT_OF_MEMORY, "the kernel ended the host")

    def _end_host(self, worker: SimWorker, kind: FailureKind, message: str) -> None:
        hosts = [host for host in worker.shell.hosts.values() if not host.has_ended]
        if hosts:
            self._rng.choice(hosts).exit(FailureReport(kind.value, message))

    def _clock(self, spec: FaultSpec, worker: SimWorker) -> None:
        worker.skew_s += spec.step_s

    # -- its network -----------------------------------------------------------------------------

    def _silence(self, spec: FaultSpec, worker: SimWorker) -> None:
        until_s = self._fabric.engine.now_s + spec.for_s
        worker.connection.link.held_until_s = {"up": until_s, "down": until_s}

    def _one_way(self, spec: FaultSpec, worker: SimWorker) -> None:
        way = self._rng.choice(("up", "down"))
        worker.connection.link.held_until_s[way] = self._fabric.engine.now_s + spec.for_s

    def cut(self, spec: FaultSpec, worker: SimWorker) -> None:
        """Breaks a worker's connection and prevents new ones for ``for_s``."""
        link = worker.connection.link
        link.up = False
        worker.connection.broken()
        self._fabric.engine.after(spec.for_s, setattr, link, "up", True)

    def _twice(self, spec: FaultSpec, worker: SimWorker) -> None:
        worker.connection.link.twice = spec.share
        self._fabric.engine.after(spec.for_s, setattr, worker.connection.link, "twice", 0.0)

    def _overtaken(self, spec: FaultSpec, worker: SimWorker) -> None:
        worker.connection.link.overtaken = spec.share
        self._fabric.engine.after(spec.for_s, setattr, worker.connection.link, "overtaken", 0.0)


def _end_slowdown(worker: SimWorker, factor: float) -> None:
    worker.slow /= factor
    if not worker.gone:
        worker.replan()

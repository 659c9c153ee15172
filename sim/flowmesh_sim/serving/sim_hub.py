"""The hub of a simulated worker: takes calls of its replicas, and reports loads and usage.

It does what ``flowmesh_worker.serving.service_hub`` does, in virtual time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowmesh_core.protocol.serving import FULL, OK, UNKNOWN_REPLICA, ReplicaLoad
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.serving.sim_engines import Ended, SimEngine

if TYPE_CHECKING:
    from flowmesh_sim.serving.call_fabric import CallFabric, SimCall, SimRouter

REPORT_EVERY_S = 0.005
USAGE_EVERY_S = 0.25
PATH = "/v1/completions"

MakeEngine = Callable[[Ended], SimEngine]
ReportUsage = Callable[[str, int, int], None]
"""Called with a replica, its calls now, and the work that they have done."""


@dataclass(slots=True, eq=False)
class _Replica:
    replica_id: str
    service: str
    instance: int
    calls: int = 0
    units: int = 0
    is_withdrawn: bool = False


@dataclass(slots=True, eq=False)
class _HubCall:
    router: "SimRouter"
    replica: _Replica
    call: "SimCall"


class SimHub:
    """One process of a hub.

    Attributes:
        name: unique per process.
        is_lost: whether the process has ended.
    """

    def __init__(
        self, engine: Environment, name: str, fabric: "CallFabric", report_usage: ReportUsage
    ) -> None:
        """Has no replicas yet."""
        self.name = name
        self.is_lost = False
        self._engine = engine
        self._fabric = fabric
        self._report_replica = report_usage
        self._instances: dict[int, SimEngine] = {}
        self._replicas: dict[str, _Replica] = {}
        self._calls: dict[str, _HubCall] = {}
        self._reports_soon = False
        self._used: dict[str, _Replica] = {}

    @property
    def in_flight(self) -> int:
        """Calls that it has."""
        return len(self._calls)

    # -- for the agent ---------------------------------------------------------------------------

    def admit(self, replica_id: str, service: str, instance: int, make: MakeEngine) -> None:
        """Takes calls of a replica; replicas of one instance share its engine."""
        known = self._replicas.get(replica_id)
        if known is not None and known.instance == instance:
            known.is_withdrawn = False
        else:
            self._replicas[replica_id] = _Replica(replica_id, service, instance)
        if instance not in self._instances:
            self._instances[instance] = make(self._ended)
        self._report_soon()

    def withdraw(self, replica_id: str) -> None:
        """Takes no further calls of a replica; those that it has go on."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.is_withdrawn = True
            self._remove_if_done(replica)
            self._report_soon()

    def host_lost(self, instance: int) -> None:
        """Ends the calls of an engine instance whose host has ended."""
        engine = self._instances.pop(instance, None)
        if engine is None:
            return
        lost = [c for c, h in self._calls.items() if h.replica.instance == instance]
        self._replicas = {i: r for i, r in self._replicas.items() if r.instance != instance}
        for call_id in lost:
            engine.abort(call_id)
            self._end(call_id, "lost")
        self._report_soon()

    def stop(self) -> None:
        """Ends the process with all its calls."""
        if self.is_lost:
            return
        self.is_lost = True
        for call_id, found in self._calls.items():
            self._instances[found.replica.instance].abort(call_id)
        self._calls.clear()
        self._fabric.hub_lost(self)

    # -- for routers -----------------------------------------------------------------------------

    def receive(self, router: "SimRouter", call: "SimCall", replica_id: str) -> None:
        """Runs a call, lets it wait, or refuses it."""
        if self.is_lost or call.call_id in self._calls:
            return
        replica = self._replicas.get(replica_id)
        if replica is None or replica.is_withdrawn:
            self._fabric.reply(self, router, call.call_id, UNKNOWN_REPLICA)
            return
        self._calls[call.call_id] = _HubCall(router, replica, call)
        replica.calls += 1
        engine = self._instances[replica.instance]
        if not engine.add(call.call_id, call.units, call.deadline_s, call.tenant):
            self._end(call.call_id, FULL)
            return
        self._report_soon()
        self._used_by(replica)

    def abort(self, call_id: str) -> None:
        """Drops a call; its end is not reported."""
        found = self._calls.pop(call_id, None)
        if found is not None:
            self._instances[found.replica.instance].abort(call_id)
            self._count_out(found.replica)

    def forget(self, router: "SimRouter") -> None:
        """Drops the calls of a router that is gone."""
        for call_id in [c for c, found in self._calls.items() if found.router is router]:
            self.abort(call_id)

    def loads(self) -> tuple[ReplicaLoad, ...]:
        """Returns its replicas that take calls."""
        return tuple(
            ReplicaLoad(r.replica_id, r.service, (PATH,), engine.calls_max, *engine.load)
            for r in self._replicas.values()
            if not r.is_withdrawn and (engine := self._instances[r.instance])
        )

    # -- calls -----------------------------------------------------------------------------------

    def _ended(self, call_id: str, outcome: str) -> None:
        if self.is_lost or call_id not in self._calls:
            return
        found = self._calls[call_id]
        if outcome == OK:
            self._fabric.book.computed[call_id] += 1
            found.replica.units += round(found.call.units)
        self._end(call_id, outcome)

    def _end(self, call_id: str, outcome: str) -> None:
        found = self._calls.pop(call_id)
        self._count_out(found.replica)
        self._fabric.reply(self, found.router, call_id, outcome)

    def _count_out(self, replica: _Replica) -> None:
        replica.calls -= 1
        self._used_by(replica)
        self._remove_if_done(replica)
        self._report_soon()

    def _remove_if_done(self, replica: _Replica) -> None:
        if replica.is_withdrawn and not replica.calls:
            self._replicas.pop(replica.replica_id, None)

    # -- reports ---------------------------------------------------------------------------------

    def _report_soon(self) -> None:
        if not self._reports_soon:
            self._reports_soon = True
            self._engine.after(REPORT_EVERY_S, self._report)

    def _report(self) -> None:
        self._reports_soon = False
        if not self.is_lost:
            self._fabric.report(self)

    def _used_by(self, replica: _Replica) -> None:
        if not self._used:
            self._engine.after(USAGE_EVERY_S, self._report_usage)
        self._used[replica.replica_id] = replica

    def _report_usage(self) -> None:
        used, self._used = self._used, {}
        if self.is_lost:
            return
        for replica in used.values():
            self._report_replica(replica.replica_id, replica.calls, replica.units)

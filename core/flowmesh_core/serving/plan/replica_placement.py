"""Plans where the replicas of services are. Pure: one plan a round, from what is there now.

What runs stays where it is, unless a move pays (``move_planner``). What is missing goes to the
worker that can load it soonest and cheapest, at most one replica of a component a worker; where no
worker has the memory, a pool that could have one grows (``Backlog.serving``). A replica never takes
memory from attempts that run.

Components of one affinity group are placed as one: a worker gets a replica of each, or none.

The least numbers come first, older services before newer ones. Replicas beyond them go, one at a
time, to the component whose capacity is the smallest part of its demand: a greedy search for the
plan whose smallest part is greatest, then the second smallest (leximin).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.serving.plan.component_demand import (
    ComponentDemand,
    FleetView,
    ReplicaGroup,
    grouped,
)
from flowmesh_core.serving.plan.missing_reason import missing_reason
from flowmesh_core.serving.plan.move_planner import MovePlanner
from flowmesh_core.serving.plan.pool_growth import PoolGrowth
from flowmesh_core.serving.plan.replica_moves import ReplicaMove, ReplicaMoves
from flowmesh_core.serving.plan.replica_reason import ReplicaReason, ReplicaVerdict
from flowmesh_core.serving.plan.worker_choice import WorkerChoice, memory_mib

STAYS = "it runs there"


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Where replicas are.

    Attributes:
        workers: worker → its replicas, in the order of loading.
        floors: pool → workers that it needs for replicas.
        reasons: (service, component) → why replicas are missing, or where they should not be; no
            entry where all is well.
        placements: why each replica is where it is, or missing.
        moves: service → its newest move; the next plan needs them.
    """

    workers: dict[str, tuple[ServingReplica, ...]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    placements: tuple[ReplicaReason, ...] = ()
    moves: dict[str, ReplicaMove] = field(default_factory=dict)


def plan_replicas(
    demands: Sequence[ComponentDemand],
    fleet: FleetView,
    moves: Mapping[str, ReplicaMove] | None = None,
    now_s: float = 0.0,
) -> ServingPlan:
    """Returns where the replicas of all services should be.

    Args:
        demands: in order of age: where memory is short, older services come first.
        fleet: what there is.
        moves: of the last plan, by service; none before the first plan.
        now_s: the time.
    """
    groups = grouped(demands)
    planner = _Planner(fleet, ReplicaMoves(moves or {}, now_s))
    missing = [(group, planner.keep(group)) for group in groups]
    for group, count in missing:
        planner.place(group, max(0, count - group.spare))
    below_floor = list(planner.unplaced.values())
    planner.place_by_need([(group, min(count, group.spare)) for group, count in missing])
    planner.move(groups, below_floor)
    return planner.plan(groups)


class _Planner:
    """A plan while it is made.

    Attributes:
        unplaced: groups with replicas that no worker can take, and no pool grows for.
    """

    def __init__(self, fleet: FleetView, moves: ReplicaMoves) -> None:
        self._fleet = fleet
        self._moves = moves
        self._workers = WorkerChoice(fleet)
        self._growth = PoolGrowth(fleet.pools, fleet.workers, fleet.reserved)
        self._stay: dict[tuple[str, str], Mapping[str, tuple[str, ...]]] = {}
        self._reasons: dict[tuple[str, str], str] = {}
        self._placements: dict[tuple[tuple[str, str], str, int], ReplicaReason] = {}
        self._left: dict[tuple[str, str], list[str]] = {}
        self._capacity_per_s: dict[tuple[str, str], float] = {}
        self.unplaced: dict[tuple[str, str], ReplicaGroup] = {}

    # -- what runs -------------------------------------------------------------------------------

    def keep(self, group: ReplicaGroup) -> int:
        """Keeps what runs, up to the number that is wanted; returns how many are missing.

        Of several components a worker keeps all or none. What a move adds does not count.
        """
        running, left = self._running(group)
        added = self._advance_move(group, running)
        stay = {name: running[name] for name in self._chosen(group, running)}
        self._stay[group.key] = stay
        for name, ids in stay.items():
            for demand, replica_id in zip(group.demands, ids, strict=True):
                self._workers.give(demand, name, replica_id)
                self._explain(demand, ReplicaVerdict.STAYS, STAYS, name, replica_id)
            self._count(group, name)
        self._keep_moved(group, added)
        missing = group.wanted - len(stay)
        if missing:
            for key, replicas in left.items():
                self._left.setdefault(key, []).extend(replicas)
        return missing

    def _running(
        self, group: ReplicaGroup
    ) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str, str], list[str]]]:
        """Returns the replicas that may stay, by worker, and the others by component."""
        known, running = set[str](), dict[str, tuple[str, ...]]()
        left: dict[tuple[str, str], list[str]] = {}
        for name in sorted(self._fleet.held, key=lambda name: self._preference(group, name)):
            held = self._fleet.held[name]
            found = {d.key: self._unknown(held, d, known) for d in group.demands}
            known.update(replica_id for ids in found.values() for replica_id in ids)
            if all(found.values()) and self._may_stay(group, name, found):
                running[name] = tuple(found[d.key].pop(0) for d in group.demands)
            for key, ids in found.items():
                left.setdefault(key, []).extend(f"{one} of {name}" for one in ids)
        return running, left

    @staticmethod
    def _unknown(
        held: Collection[str], demand: ComponentDemand, known: Collection[str]
    ) -> list[str]:
        return [r for r in held if r.startswith(demand.prefix) and r not in known]

    def _preference(self, group: ReplicaGroup, name: str) -> tuple[bool, bool, int, str]:
        """Orders workers with replicas: loaded ones first, then the cheapest workers."""
        is_claim, worker = name in self._fleet.reported, self._workers.able.get(name)
        if worker is None:
            return is_claim, True, 0, name
        loads = not all(_is_loaded(worker, demand) for demand in group.demands)
        return is_claim, loads, worker.shape.price_nanousd_per_hour, name

    def _may_stay(
        self, group: ReplicaGroup, name: str, found: Mapping[tuple[str, str], Sequence[str]]
    ) -> bool:
        """Whether a worker may keep its replicas; those that are too slow there leave by a move.

        What is not ready, and needs more than the whole worker, goes elsewhere at once.
        """
        worker = self._workers.able.get(name)
        if worker is None:
            return False
        ready = all(ids[0] in self._fleet.ready for ids in found.values())
        return (ready or group.memory_mib() <= memory_mib(worker)) and all(
            self._workers.may_hold(demand, name) for demand in group.demands
        )

    def _chosen(self, group: ReplicaGroup, running: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Returns the workers whose replicas stay: the cheapest, where these serve the demand."""
        names = list(running)
        cheapest = names[: group.wanted]
        if len(names) <= group.wanted or self._served_part(group, cheapest) >= 1:
            return cheapest

        def order(name: str) -> tuple[bool, bool, float]:
            return *self._preference(group, name)[:2], -self._served_part(group, [name])

        return sorted(names, key=order)[: group.wanted]

    def _served_part(self, group: ReplicaGroup, names: Iterable[str]) -> float:
        return group.served_part([self._workers.device_class(name) for name in names])

    def _advance_move(self, group: ReplicaGroup, running: dict[str, tuple[str, ...]]) -> str:
        """Takes what a move has replaced, or has added, out of what runs.

        Returns:
            The worker of the replicas that a move has added, while they load; empty for none.
        """
        move = self._moves.of(group.service)
        if not move.coming or not group.owns(move.coming[0]):
            return ""
        workers = {ids: name for name, ids in running.items()}
        old, new = workers.get(move.leaving, ""), workers.get(move.coming, "")
        if not old:  # its worker is gone: what was added is a replica as any other
            self._moves.end(group.service, move.failures)
        elif not new or any(replica_id in self._fleet.failed for replica_id in move.coming):
            running.pop(new, None)
            self._moves.end(group.service, move.failures + 1)
        elif self._others_are_loaded(running, old):
            del running[old]
            self._moves.end(group.service, 0)
        else:
            del running[new]
            return new
        return ""

    def _others_are_loaded(self, running: Mapping[str, tuple[str, ...]], leaving: str) -> bool:
        """Whether all replicas are ready but those that leave a worker, and those that failed.

        If one still loaded, the service would have fewer ready replicas for a while than before.
        """
        others = {i for name, ids in running.items() if name != leaving for i in ids}
        return others.difference(self._fleet.failed) <= set(self._fleet.ready)

    def _keep_moved(self, group: ReplicaGroup, added: str) -> None:
        """Keeps the replicas that a move has added beside those that leave, while these stay."""
        move = self._moves.of(group.service)
        if not added:
            return
        if move.leaving not in self._stay[group.key].values():  # fewer are wanted now
            self._moves.end(group.service, move.failures)
            return
        for demand, old, new in zip(group.demands, move.leaving, move.coming, strict=True):
            self._workers.give(demand, added, new)
            self._explain(demand, ReplicaVerdict.MOVED, move.reason, added, new)
            name = next(n for n, ids in self._stay[group.key].items() if ids == move.leaving)
            self._explain(demand, ReplicaVerdict.STAYS, _until(new, added), name, old)

    # -- what is missing -------------------------------------------------------------------------

    def place(self, group: ReplicaGroup, count: int) -> None:
        """Places missing replicas on workers; else has a pool grow, or notes why it cannot."""
        for _ in range(count):
            self._place_one(group)

    def place_by_need(self, missing: Sequence[tuple[ReplicaGroup, int]]) -> None:
        """Places replicas one at a time, each for the component that is shortest of capacity."""
        counts = {group.key: count for group, count in missing}
        order = {group.key: n for n, (group, _) in enumerate(missing)}
        short = [group for group, count in missing if count]
        while short:
            self._workers.rivals = short
            group = min(short, key=lambda g: (*self._need(g), order[g.key]))
            if self._place_one(group):
                counts[group.key] -= 1
            else:  # no more of it fit, and each that is missing may have a worker come
                self.place(group, counts[group.key] - 1)
                counts[group.key] = 0
            short = [g for g in short if counts[g.key]]
        self._workers.rivals = ()

    def _need(self, group: ReplicaGroup) -> tuple[float, float]:
        """Returns the part of its demand that a component serves, and less what one more adds."""
        return min(map(self._need_of, group.demands))

    def _need_of(self, demand: ComponentDemand) -> tuple[float, float]:
        if not demand.rate_per_s:
            return float("inf"), 0.0
        served = self._capacity_per_s.get(demand.key, 0.0)
        more = max(demand.capacity_per_s.values(), default=0.0)
        return served / demand.rate_per_s, -more / demand.rate_per_s

    def _place_one(self, group: ReplicaGroup) -> bool:
        found = self._workers.best(group)
        if found is None:
            text = self._growth.add(group)
            if not text:
                self.unplaced[group.key] = group
                text = missing_reason(group, self._workers.able.values(), self._workers.tenants)
            for demand in group.demands:
                self._reasons[demand.key] = text
                self._explain(demand, ReplicaVerdict.MISSING, text)
            return False
        name, reason = found
        ids = self._workers.give_new(group, name)
        self._count(group, name)
        for demand, replica_id in zip(group.demands, ids, strict=True):
            verdict, text, left = ReplicaVerdict.PLACED, reason, self._left.get(demand.key)
            if left:
                verdict, text = ReplicaVerdict.MOVED, f"{reason}; in place of {left.pop(0)}"
            self._explain(demand, verdict, text, name, replica_id)
        return True

    def _count(self, group: ReplicaGroup, name: str) -> None:
        """Counts what a replica of each component adds to what it serves."""
        device_class = self._workers.device_class(name)
        for demand in group.demands:
            served = self._capacity_per_s.get(demand.key, 0.0) + demand.served_per_s(device_class)
            self._capacity_per_s[demand.key] = served

    # -- what moves ------------------------------------------------------------------------------

    def move(self, groups: Sequence[ReplicaGroup], below_floor: Sequence[ReplicaGroup]) -> None:
        """Begins the moves that pay, at most one a service.

        Args:
            groups: all of them.
            below_floor: those whose least number of replicas no worker can take.
        """
        planner = MovePlanner(self._workers, self._moves, groups, self._stay)
        for move in planner.begin(below_floor):
            parts = zip(move.group.demands, move.leaving, move.coming, strict=True)
            for demand, old, new in parts:
                self._explain(demand, ReplicaVerdict.MOVED, move.reason, move.target, new)
                text = _until(new, move.target)
                self._explain(demand, ReplicaVerdict.STAYS, text, move.source, old)
        for group, text in planner.too_slow():
            growth = "" if self._workers.candidates(group) else self._growth.add(group)
            for demand in group.demands:
                self._reasons[demand.key] = f"{text}; {growth}" if growth else text

    def _explain(
        self,
        demand: ComponentDemand,
        verdict: ReplicaVerdict,
        text: str,
        worker: str = "",
        replica_id: str = "",
    ) -> None:
        """Gives the reason for a replica, in place of one that it has."""
        number = 0 if replica_id else len(self._placements)  # each missing one has a reason
        reason = ReplicaReason(*demand.key, verdict, text, worker, replica_id)
        self._placements[demand.key, replica_id, number] = reason

    def plan(self, groups: Iterable[ReplicaGroup]) -> ServingPlan:
        """Returns the plan."""
        given = self._workers.given
        return ServingPlan(
            {name: tuple(replicas) for name, replicas in given.items()},
            self._growth.floors(self._workers.able.values(), given),
            self._reasons,
            tuple(self._placements.values()),
            self._moves.all(group.service for group in groups),
        )


def _until(replica_id: str, worker: str) -> str:
    return f"{STAYS} until {replica_id} of {worker} is ready"


def _is_loaded(worker: WorkerView, demand: ComponentDemand) -> bool:
    instance = worker.instances.get(demand.info.signature)
    return instance is not None and not instance.load_remaining_s > 0

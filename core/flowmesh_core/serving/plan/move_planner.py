"""Begins the moves of replicas that pay; called by ``replica_placement`` when all else is placed.

A ready replica moves to another worker for one of four reasons, in this order: so that the least
number of another component finds a place; because its worker has not the memory for what it has;
because it cannot keep its latency target there; or because what the service serves gains by
``MOVE_GAIN_SHARE``. Capacity beyond the demand is no gain: else each service would go to the
largest device. A service begins a move at most every ``MOVE_EVERY_S``, and has one at a time.

A move for a gain raises the smallest part of its service's demand and lowers no other, and one
that makes a place lowers none. So with a steady demand moves end: no sequence of them returns to
where it began.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowmesh_core.serving.plan.component_demand import ReplicaGroup
from flowmesh_core.serving.plan.replica_moves import MOVE_GAIN_SHARE, ReplicaMoves
from flowmesh_core.serving.plan.worker_choice import WorkerChoice, memory_mib

StayingReplicas = Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]
"""By group and worker, the replicas that stay: one of each component, without those that a move
adds."""


@dataclass(frozen=True, slots=True)
class BegunMove:
    """A move that begins.

    Attributes:
        group: the components of the replicas.
        source: the worker that they leave; ``target`` the one that loads them.
        leaving: their ids there; ``coming`` those of the new ones.
        reason: why.
    """

    group: ReplicaGroup
    source: str
    target: str
    leaving: tuple[str, ...]
    coming: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """Replicas of a group on one worker, and where they would go."""

    group: ReplicaGroup
    source: str
    targets: tuple[str, ...]
    reason: str


_Rank = tuple[tuple[int, int, str], _Choice]


class MovePlanner:
    """Chooses the moves of one plan."""

    def __init__(
        self,
        workers: WorkerChoice,
        moves: ReplicaMoves,
        groups: Sequence[ReplicaGroup],
        stay: StayingReplicas,
    ) -> None:
        """Chooses among what a plan has placed.

        Args:
            workers: with all that the plan has given them.
            moves: of the last plan, less those that are over.
            groups: in order of age.
            stay: what stays where it is.
        """
        self._workers = workers
        self._moves = moves
        self._groups = groups
        self._stay = stay
        self._ages = {group.key: number for number, group in enumerate(groups)}

    def begin(self, below_floor: Sequence[ReplicaGroup]) -> Iterator[BegunMove]:
        """Yields the moves that begin now, with their replicas added to the plan.

        Args:
            below_floor: groups whose least number of replicas no worker can take.
        """
        for waiting in below_floor:
            yield from self._begin(self._for_floor(waiting))
        for name in self._workers.able:
            yield from self._begin(self._for_memory(name))
        for group, text in self.too_slow():
            yield from self._begin(self._for_target(group, text))
        for service in dict.fromkeys(group.service for group in self._groups):
            yield from self._begin(self._for_capacity(service))

    def too_slow(self) -> Iterator[tuple[ReplicaGroup, str]]:
        """Yields the groups with replicas that are too slow where they are, and why.

        Those that a move takes away are left out.
        """
        for group in self._groups:
            leaving = self._moves.of(group.service).leaving
            for name, ids in self._stay[group.key].items():
                if ids != leaving and (text := self._too_slow(group, name)):
                    yield group, text
                    break

    def _too_slow(self, group: ReplicaGroup, name: str) -> str:
        device_class = self._workers.device_class(name)
        texts = (d.too_slow[device_class] for d in group.demands if device_class in d.too_slow)
        return next(texts, "")

    def _begin(self, choice: _Choice | None) -> Iterator[BegunMove]:
        if choice is None:
            return
        group, source = choice.group, choice.source
        found = self._workers.best(group, choice.targets)
        if found is None:
            return
        target, text = found
        leaving = self._stay[group.key][source]
        coming = self._workers.give_new(group, target)
        reason = f"{choice.reason}; {text}; in place of {leaving[0]} of {source}"
        self._moves.begin(group.service, leaving, coming, reason)
        yield BegunMove(group, source, target, leaving, coming, reason)

    def _movable(self, name: str | None = None) -> Iterator[tuple[ReplicaGroup, str]]:
        """Yields the groups that may move replicas now, with a worker that these could leave.

        Args:
            name: the only worker that counts; None for all.
        """
        for group in self._groups:
            if self._moves.may_begin(group.service):
                for source, ids in self._stay[group.key].items():
                    ready = all(one in self._workers.fleet.ready for one in ids)
                    if ready and name in (None, source):
                        yield group, source

    # -- reasons ---------------------------------------------------------------------------------

    def _for_floor(self, waiting: ReplicaGroup) -> _Choice | None:
        """Returns the move that makes room for a group on the worker where least has to move."""
        found: list[_Rank] = []
        for name, worker in self._workers.able.items():
            if worker.draining or not self._workers.fits(waiting, name):
                continue
            lacking_mib = self._workers.lacking_mib(waiting, name)
            if lacking_mib <= self._leaving_mib(name):
                return None  # there is room soon
            reason = f"{waiting.demands[0].component} of {waiting.service} needs its place"
            found += self._freeing_moves(name, lacking_mib, reason, may_lose=False)
        return _least(found)

    def _for_memory(self, name: str) -> _Choice | None:
        """Returns the move that ends a lack of memory on a worker, such as one learned since."""
        worker = self._workers.able[name]
        lacking_mib = worker.replica_memory_mib - memory_mib(worker)
        if lacking_mib <= self._leaving_mib(name):
            return None
        reason = f"{name} lacks {lacking_mib} MiB for its replicas"
        return _least(self._freeing_moves(name, lacking_mib, reason, may_lose=True))

    def _for_target(self, group: ReplicaGroup, text: str) -> _Choice | None:
        for other, source in self._movable():
            if other is group and self._too_slow(group, source):
                return _Choice(group, source, tuple(self._workers.candidates(group)), text)
        return None

    def _for_capacity(self, service: str) -> _Choice | None:
        """Returns the move after which a service serves the most, where it gains enough by it."""
        if not self._moves.may_begin(service):
            return None
        group = min((g for g in self._groups if g.service == service), key=self._part)
        before, best = self._part(group), None
        if before >= 1:
            return None
        most, targets = before * (1 + MOVE_GAIN_SHARE) * (1 - 1e-9), self._workers.candidates(group)
        for other, source in self._movable():
            if other is not group or not self._is_known(group, source):
                continue
            parts = {name: self._part(group, source, name) for name in targets}
            after = max(parts.values(), default=0.0)
            if after >= most and after > before:
                most = after * (1 + 1e-9)
                equal = tuple(name for name, part in parts.items() if part == after)
                text = f"it serves {after:.0%} of the demand there, {before:.0%} here"
                best = _Choice(group, source, equal, text)
        return best

    # -- what moves would change -----------------------------------------------------------------

    def _part(self, group: ReplicaGroup, source: str = "", target: str = "") -> float:
        """Returns the part of a group's demand that is served, at most 1.

        With ``source`` and ``target`` it is the part after a move between these workers.
        """
        prefix = group.demands[0].prefix
        names = [
            name
            for name, replicas in self._workers.given.items()
            if name != source and any(r.replica_id.startswith(prefix) for r in replicas)
        ]
        names += [target] if target else []
        return min(1.0, group.served_part([self._workers.device_class(name) for name in names]))

    def _is_known(self, group: ReplicaGroup, source: str) -> bool:
        """Returns whether it is known what the replicas on a worker serve."""
        device_class = self._workers.device_class(source)
        return all(device_class in d.capacity_per_s for d in group.demands)

    def _freeing_moves(
        self, name: str, lacking_mib: int, reason: str, *, may_lose: bool
    ) -> list[_Rank]:
        """Returns the moves that free enough memory of a worker.

        The best is that with the least memory, and then that of the youngest service.

        Args:
            name: of the worker.
            lacking_mib: how much is enough.
            reason: why it is needed.
            may_lose: whether a service may serve less of its demand after the move.
        """
        found = []
        for group, source in self._movable(name):
            freed_mib = self._freed_mib(group, source)
            if freed_mib < lacking_mib:
                continue
            before = 0.0 if may_lose else self._part(group)
            candidates = self._workers.candidates(group)
            targets = tuple(n for n in candidates if self._part(group, name, n) >= before)
            if targets:
                choice = _Choice(group, source, targets, reason)
                found.append(((freed_mib, -self._ages[group.key], name), choice))
        return found

    def _freed_mib(self, group: ReplicaGroup, name: str) -> int:
        """Returns the memory of a group on a worker that no other replica there shares."""
        own = set(self._stay[group.key][name])
        shared = {r.opening.signature for r in self._workers.given[name] if r.replica_id not in own}
        return group.memory_mib(shared)

    def _leaving_mib(self, name: str) -> int:
        """Returns the memory of a worker that comes free: of what closes, and of moves."""
        pinned = self._workers.fleet.pinned.get(name, ())
        stays = {
            r.opening.signature: r.opening.memory_mib for r in self._workers.given.get(name, ())
        }
        listed_mib = sum(mib for signature, mib in stays.items() if signature in pinned)
        closing_mib = max(0, self._workers.able[name].replica_memory_mib - listed_mib)
        return closing_mib + sum(
            self._freed_mib(group, name)
            for group in self._groups
            if name in self._stay[group.key]
            and self._stay[group.key][name] == self._moves.of(group.service).leaving
        )


def _least(found: Sequence[_Rank]) -> _Choice | None:
    """Returns the choice that ranks first; None where there is none."""
    return min(found, key=lambda item: item[0])[1] if found else None

"""Identical workers in identical state, found once a tick, so that each is scored once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowmesh_core.fleet.snapshot import RejectionCause, Requirement, Snapshot, Tier, WorkerView
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.scheduler.constraints import unmet
from flowmesh_core.units import Digest


@dataclass(slots=True)
class WorkerClass:
    """Workers that no group can tell apart by anything but their name and inputs that lie near.

    Attributes:
        members: places in the snapshot, ascending.
        view: of the first member; stands for all.
        kind: number of the shape, for constraints.
    """

    members: list[int]
    view: WorkerView
    kind: int
    busy_lanes: int


@dataclass(slots=True)
class Fleet:
    """The workers of a tick by class.

    Attributes:
        classes: those that take work, in order of their first member.
        shapes: distinct shapes by number, of draining workers too.
    """

    classes: list[WorkerClass]
    shapes: list[WorkerShape]


def classify(snapshot: Snapshot) -> Fleet:
    """Partitions the workers by shape, lanes, free memory and the components that they hold."""
    components = frozenset(
        digest for info in snapshot.signatures.values() for digest, _ in info.components
    )
    shapes: list[WorkerShape] = []
    kinds: dict[tuple[object, ...], int] = {}
    classes: dict[tuple[object, ...], WorkerClass] = {}
    for index, worker in enumerate(snapshot.workers):
        kind = kinds.setdefault(_shape_key(worker.shape), len(shapes))
        if kind == len(shapes):
            shapes.append(worker.shape)
        if worker.draining:
            continue
        key = _state_key(worker, kind, components)
        found = classes.get(key)
        if found is None:
            busy = sum(1 for lane in worker.lanes.values() if lane.held)
            classes[key] = WorkerClass([index], worker, kind, busy)
        else:
            found.members.append(index)
    return Fleet(list(classes.values()), shapes)


def _shape_key(shape: WorkerShape) -> tuple[object, ...]:
    """All that constraints, prices and predictions read; neither the name nor the pool."""
    return (
        shape.device_class,
        shape.devices,
        shape.device_memory_mib,
        shape.price_nanousd_per_hour,
        shape.cpus,
        shape.allows_user_code,
        shape.honours,
        tuple(sorted(shape.engines.items())),
        tuple(sorted(shape.labels.items())) if shape.labels else (),
    )


def _state_key(worker: WorkerView, kind: int, components: frozenset[Digest]) -> tuple[object, ...]:
    near = worker.near
    held = (
        frozenset((digest, near[digest]) for digest in near.keys() & components)
        if near and components
        else None
    )
    lanes = tuple(sorted(worker.lanes.items(), key=_by_signature)) if worker.lanes else ()
    return (kind, worker.free_memory_mib, lanes, held)


def _by_signature(item: tuple[Digest, object]) -> Digest:
    return item[0]


def near_bytes(
    components: Sequence[tuple[Digest, int]], near: Mapping[Digest, Tier]
) -> dict[Tier, int]:
    """Bytes of components by the tier in which a worker holds them; ``FAR`` for the rest."""
    found: dict[Tier, int] = {}
    for digest, size in components:
        tier = near.get(digest, Tier.FAR)
        found[tier] = found.get(tier, 0) + size
    return found


class Feasibility:
    """Which kinds of worker meet a requirement, looked up once a signature."""

    def __init__(self, fleet: Fleet) -> None:
        """Takes the fleet of the tick."""
        self._fleet = fleet
        self._known: dict[Digest, tuple[RejectionCause | None, ...]] = {}

    def unmet_by_kind(
        self, signature: Digest, requirement: Requirement
    ) -> tuple[RejectionCause | None, ...]:
        """For every kind, the first constraint that it does not meet, or None."""
        found = self._known.get(signature)
        if found is None:
            found = tuple(unmet(requirement, shape) for shape in self._fleet.shapes)
            self._known[signature] = found
        return found

"""Faults of the store: unavailable, slow, refusing, racing, losing and damaging data."""

from collections.abc import Callable, Iterator
from random import Random

from flowmesh_core.units import Digest
from flowmesh_sim.control import sweeper
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.scenario import FaultSpec

Strike = Callable[[FaultSpec], None]


class StoreFaults:
    """Injects the faults of the store.

    Attributes:
        by_kind: functions by the fault's kind.
    """

    def __init__(self, fabric: SimulatedFabric, rng: Random) -> None:
        self._fabric = fabric
        self._store = fabric.store
        self._rng = rng
        self.by_kind: dict[str, Strike] = {
            "store-down": lambda f: self._set_for(f, "down", normal=False, faulty=True),
            "store-errors": lambda f: self._set_for(f, "refuses", normal=0.0, faulty=f.share),
            "store-race": lambda f: self._set_for(f, "races", normal=0.0, faulty=f.share),
            "store-slow": lambda f: self._set_for(f, "slow_s", normal=0.0, faulty=f.factor),
            "lose-blob": lambda f: self._strike_blob(self._store.lose),
            "damage-blob": lambda f: self._strike_blob(self._store.damaged.add),
            "damage-result": self._damage_result,
            "collect": self._collect,
        }

    def _set_for(self, spec: FaultSpec, name: str, *, normal: float, faulty: float) -> None:
        setattr(self._store, name, faulty)
        self._fabric.engine.after(spec.for_s, setattr, self._store, name, normal)

    def _strike_blob(self, strike: Callable[[Digest], None]) -> None:
        """Applies a fault to an action's output; uploads of users are not affected."""
        outputs = sorted(set(self._output_blobs()))
        if outputs:
            strike(self._rng.choice(outputs))

    def _output_blobs(self) -> Iterator[Digest]:
        for result in self._store.results.values():
            for artifact in result.outputs.values():
                yield from (blob for blob in artifact.blobs() if blob in self._store.blobs)

    def _damage_result(self, spec: FaultSpec) -> None:
        if self._store.results:
            place = self._rng.choice(sorted(self._store.results))
            self._store.torn.add(place)
            self._fabric.checker.unreadable({place})

    def _collect(self, spec: FaultSpec) -> None:
        fabric = self._fabric
        control = fabric.control
        if control is None or self._store.down:
            return
        if control.busy:  # the sweep needs a state that includes all submitted runs
            fabric.engine.after(0.1, self._collect, spec)
            return
        wall_s = control.now_s()
        expired = sweeper.expire(self._store, wall_s)
        swept = sweeper.sweep(
            self._store,
            control.machine.state,
            fabric.bucket,
            wall_s=wall_s,
            now_s=fabric.engine.now_s,
            ttl_s=fabric.settings.machine.result_ttl_s,
            grace_s=fabric.grace_s,
        )
        fabric.checker.unreadable(expired)
        fabric.checker.collected(fabric, swept)

"""The bucket's bad days: it does not answer, is slow, refuses, races, loses, damages, collects."""

from collections.abc import Callable, Iterator
from random import Random

from flowmesh_core.units import Digest
from flowmesh_sim.control import sweeper
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.scenario import FaultSpec

Strike = Callable[[FaultSpec], None]


class StoreFaults:
    """Does them.

    Attributes:
        by_kind: what each does.
    """

    def __init__(self, fabric: SimulatedFabric, rng: Random) -> None:
        """Takes the fabric whose store it is, and the dice."""
        self._fabric = fabric
        self._store = fabric.store
        self._rng = rng
        self.by_kind: dict[str, Strike] = {
            "store-down": lambda f: self._for_a_while(f, "down", well=False, ill=True),
            "store-errors": lambda f: self._for_a_while(f, "refuses", well=0.0, ill=f.share),
            "store-race": lambda f: self._for_a_while(f, "races", well=0.0, ill=f.share),
            "store-slow": lambda f: self._for_a_while(f, "slow_s", well=0.0, ill=f.factor),
            "lose-blob": lambda f: self._to_a_blob(self._store.lose),
            "damage-blob": lambda f: self._to_a_blob(self._store.damaged.add),
            "damage-result": self._damage_result,
            "collect": self._collect,
        }

    def _for_a_while(self, spec: FaultSpec, name: str, *, well: float, ill: float) -> None:
        setattr(self._store, name, ill)
        self._fabric.engine.after(spec.for_s, setattr, self._store, name, well)

    def _to_a_blob(self, strike: Callable[[Digest], None]) -> None:
        """Strikes what some action made; what users uploaded stays."""
        made = sorted(set(self._made()))
        if made:
            strike(self._rng.choice(made))

    def _made(self) -> Iterator[Digest]:
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
        if control.busy:  # it sweeps by a state that has taken up what was submitted
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

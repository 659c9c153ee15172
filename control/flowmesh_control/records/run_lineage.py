"""The lineage of an output within the run that made it; used by the API.

A walk by digest alone (:meth:`LineageIndex.walk`) also follows other runs that made equal bytes and
their inputs. They are not part of this output's history.
"""

import math
from dataclasses import dataclass, field

from flowmesh_api.v1.lineage import Derivation, Direction, LineageWalk
from flowmesh_control.records.lineage_index import DERIVATIONS_MAX, LineageIndex, Seen
from flowmesh_control.records.lineage_reader import LineageReader
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An artifact to follow.

    Attributes:
        uid: of the run that used or made it.
        step: that made it, where that is known.
        before_s: the time in seconds by which it existed.
    """

    digest: Digest
    uid: str
    step: str = ""
    before_s: float = math.inf


async def walk_run(
    lineage: LineageIndex,
    digest: Digest,
    made: tuple[str, str],
    seen: Seen,
    *,
    limit: int = DERIVATIONS_MAX,
    depth: int = DERIVATIONS_MAX,
) -> LineageWalk:
    """Follows an output upwards through its run's own derivations.

    An input of the run is followed into the first run that made it.

    Args:
        lineage: the index.
        digest: of the output.
        made: uid and step that made it; an empty step for an input of the run.
        seen: as in :meth:`LineageIndex.walk`; the run itself is visible.
        limit: the most derivations.
        depth: the longest chain of derivations.
    """
    walk = _RunWalk(lineage, lineage.reader(), seen)
    frontier = [_Wanted(digest, *made)]
    for _ in range(depth):
        frontier = [onward for wanted in frontier for onward in await walk.follow(wanted)]
        if not frontier or len(walk.found) >= limit:
            break
    cut = len(walk.found) > limit
    for wanted in frontier:  # uploaded artifacts have no maker
        cut = cut or await walk.maker(wanted) is not None
    found = tuple(walk.found.values())[:limit]
    return LineageWalk(digest, Direction.UP, found, cut=cut, others=walk.others)


@dataclass(slots=True)
class _RunWalk:
    """The state of a walk; ``others`` counts further runs that made an input of the run."""

    lineage: LineageIndex
    reader: LineageReader
    seen: Seen
    found: dict[tuple[str, str], Derivation] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    _met: set[Digest] = field(default_factory=set)

    async def follow(self, wanted: _Wanted) -> list[_Wanted]:
        """Adds the artifact's derivation; returns those of its inputs that are new."""
        self._met.add(wanted.digest)
        maker = await self.maker(wanted)
        if maker is None or (maker.uid, maker.step) in self.found:
            return []
        self.found[maker.uid, maker.step] = maker
        inputs = dict.fromkeys(Digest(d) for digests in maker.inputs.values() for d in digests)
        new = [d for d in inputs if d not in self._met]
        self._met.update(new)
        return [_Wanted(d, maker.uid, before_s=maker.time_s) for d in new]

    async def maker(self, wanted: _Wanted) -> Derivation | None:
        """Returns the run's own derivation of an artifact, else the first of another run."""
        made = await self.reader.made_by_run(wanted.uid, wanted.digest)
        made = [d for d in made if d.time_s <= wanted.before_s and wanted.step in ("", d.step)]
        own = min(made, key=lambda d: (d.time_s, d.step), default=None)
        return await self._first_of_others(wanted) if own is None else own

    async def _first_of_others(self, wanted: _Wanted) -> Derivation | None:
        made = await self.lineage.makers(self.reader, wanted.digest, self.seen)
        made = [d for d in made if d.time_s <= wanted.before_s and d.uid != wanted.uid]
        runs = {d.uid for d in made}
        if len(runs) > 1:
            self.others[wanted.digest] = len(runs) - 1
        return made[0] if made else None

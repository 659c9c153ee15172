"""Which runs have some artifacts, and what was made of them: lineage followed down.

Used where content is withheld. Lineage is written when a run ends, so runs under way are not here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from flowmesh_api.v1.lineage import Derivation, Direction
from flowmesh_control.records.lineage_index import DERIVATIONS_MAX, LineageIndex
from flowmesh_core.units import Digest

ROOTS_MAX = 10_000
"""More artifacts are not followed; the answer then says that it is cut."""


@dataclass(slots=True)
class DerivedArtifacts:
    """What was found.

    Attributes:
        having: derivations that have one of the artifacts as an output: the runs that made or
            reused it.
        derived: derivations that used one of them, or what was made of them, nearest first.
        cut: whether there is more.
    """

    having: list[Derivation] = field(default_factory=list)
    derived: list[Derivation] = field(default_factory=list)
    cut: bool = False


async def derived_from(
    lineage: LineageIndex, roots: Collection[Digest], *, limit: int = DERIVATIONS_MAX
) -> DerivedArtifacts:
    """Follows artifacts down through the runs of all namespaces.

    Args:
        lineage: the index.
        roots: identities of the artifacts.
        limit: the most derivations.
    """
    reader = lineage.reader()
    start = sorted(roots)[:ROOTS_MAX]
    found = DerivedArtifacts(cut=len(roots) > len(start))
    found.having = await lineage.touching(reader, start, Direction.UP, _all_namespaces)
    met: set[Digest] = set(start)
    known: set[tuple[str, str]] = set()
    frontier = start
    while frontier:
        if len(found.derived) >= limit:
            found.cut = True
            break
        onward: list[Digest] = []
        for made in await lineage.touching(reader, frontier, Direction.DOWN, _all_namespaces):
            if (made.uid, made.step) not in known:
                known.add((made.uid, made.step))
                found.derived.append(made)
                onward += map(Digest, made.outputs.values())
        frontier = [d for d in dict.fromkeys(onward) if d not in met]
        met.update(frontier)
    return found


async def _all_namespaces(namespaces: Iterable[str]) -> frozenset[str]:
    return frozenset(namespaces)

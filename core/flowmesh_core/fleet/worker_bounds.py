"""Which workers the namespaces may use whose quota bounds how many they use at once.

A scheduling cycle asks for each group of ready actions, and counts the workers that it gives away.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """The workers that a namespace uses: they run what only it wants; and how many it may use."""

    workers: frozenset[str]
    most: int


class WorkerBounds:
    """The workers of bounded namespaces during one cycle.

    An action that several namespaces want counts for none of them.
    """

    def __init__(self, uses: Mapping[str, WorkerUse]) -> None:
        """Starts from what each bounded namespace uses.

        Of more workers than a namespace may use, since its bound was lowered, only so many get
        further work of it: the first by name, so that the others become free.
        """
        self._uses = uses
        self._admitted = {n: set(sorted(use.workers)[: use.most]) for n, use in uses.items()}

    def admits(self, namespaces: Collection[str], worker: str) -> bool:
        """Whether a worker may run what these namespaces want, all of them bounded."""
        return any(worker in self._admitted[n] or self._is_below(n) for n in namespaces)

    def take(self, namespaces: Collection[str], worker: str) -> bool:
        """Counts a worker that was given an action; returns whether a bound has been reached."""
        if len(namespaces) != 1:
            return False
        (namespace,) = namespaces
        if worker in self._admitted[namespace]:
            return False
        self._admitted[namespace].add(worker)
        return not self._is_below(namespace)

    def reached(self, namespaces: Collection[str]) -> bool:
        """Whether these namespaces, of which there are some, use all the workers they may."""
        return bool(namespaces) and not any(map(self._is_below, namespaces))

    def free(self, namespace: str) -> int:
        """Returns how many workers more a namespace may use."""
        return self._uses[namespace].most - len(self._admitted[namespace])

    def text(self, namespaces: Collection[str]) -> str:
        """Returns for users how many workers the namespaces use, and may use."""
        uses = (
            f"namespace {n} uses {len(self._uses[n].workers | self._admitted[n])} of at most "
            f"{self._uses[n].most} workers"
            for n in sorted(namespaces)
        )
        return " and ".join(uses)

    def _is_below(self, namespace: str) -> bool:
        return self.free(namespace) > 0

"""Tracks the workers of namespaces whose quota limits how many workers they use at once.

A scheduling cycle checks each group of ready actions here, and counts the workers that it assigns.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """The workers that run actions only this namespace wants, and how many it may use."""

    workers: frozenset[str]
    most: int


class WorkerBounds:
    """The workers of bounded namespaces during one cycle.

    An action that several namespaces want counts for none of them. A namespace may have one of its
    workers reserved for actions of one kind; for all other actions its bound is lower by one.
    """

    def __init__(self, uses: Mapping[str, WorkerUse]) -> None:
        """Starts from the workers that each bounded namespace uses.

        If a bound was lowered, a namespace may use more workers than it allows. Only the first ones
        by name, up to the bound, get more of its work, so that the others become free.
        """
        self._most = {n: use.most for n, use in uses.items()}
        self._used = {n: set(use.workers) for n, use in uses.items()}
        self._admitted = {n: set(sorted(use.workers)[: use.most]) for n, use in uses.items()}
        self._reserved_for: dict[str, Hashable] = {}

    def used(self, namespaces: Collection[str]) -> set[str]:
        """Returns the workers that at least one of these namespaces uses."""
        return set[str]().union(*(self._used[n] for n in namespaces))

    def may_use_any(self, namespaces: Collection[str]) -> bool:
        """Whether at least one of these namespaces may use workers at all."""
        return any(self._most[n] for n in namespaces)

    def reserve(self, namespace: str, kind: Hashable, in_order: Sequence[str]) -> None:
        """Reserves one of a namespace's workers for actions of one kind only.

        Args:
            namespace: a namespace with a bound of at least 1.
            kind: the kind of the actions, as passed to ``admits``.
            in_order: the workers that the namespace uses, the first to become free first. If the
                namespace is at its bound, the first of them gets no more of its work.
        """
        self._reserved_for[namespace] = kind
        admitted = self._admitted[namespace]
        if len(admitted) >= self._most[namespace]:
            admitted.remove(next(worker for worker in in_order if worker in admitted))

    def admits(self, namespaces: Collection[str], worker: str, kind: Hashable = None) -> bool:
        """Whether a worker may run an action that these bounded namespaces want."""
        return any(worker in self._admitted[n] or self.free(n, kind) for n in namespaces)

    def take(self, namespaces: Collection[str], worker: str) -> bool:
        """Counts a worker that was given an action; returns whether this reached a bound."""
        if len(namespaces) != 1:
            return False
        (namespace,) = namespaces
        self._admitted[namespace].add(worker)
        if worker in self._used[namespace]:
            return False
        self._used[namespace].add(worker)
        return not self.free(namespace)

    def reached(self, namespaces: Collection[str], kind: Hashable = None) -> bool:
        """Whether these namespaces all use as many workers as they may; False if there are none."""
        return bool(namespaces) and not any(self.free(n, kind) for n in namespaces)

    def free(self, namespace: str, kind: Hashable = None) -> int:
        """Returns how many more workers a namespace may use for actions of one kind."""
        reserved = namespace in self._reserved_for and self._reserved_for[namespace] != kind
        return max(0, self._most[namespace] - len(self._used[namespace]) - reserved)

    def text(self, namespaces: Collection[str], kind: Hashable = None) -> str:
        """Returns why work waits if its namespaces use all the workers that they may."""
        uses = " and ".join(self._use_text(n, kind) for n in sorted(namespaces))
        starts = "it starts when one of them has room, or "
        hint = "ask an administrator for a larger workers in the quota"
        return f"{uses}; {starts if self.may_use_any(namespaces) else ''}{hint}"

    def _use_text(self, namespace: str, kind: Hashable) -> str:
        used, most = len(self._used[namespace]), self._most[namespace]
        if not most:
            return f"namespace {namespace} may use no workers"
        text = f"namespace {namespace} uses {used} of at most {most} workers"
        if self._reserved_for.get(namespace, kind) == kind:
            return text
        return f"{text}, one of which is for work that waits longer and needs another worker"

"""Joins by matched sets: a stage begins once it has the values of one request and one route.

A join is keyed by request and route version, and within these by stage. Only complete sets leave
it, each once; what comes twice, or for a route that was replaced, is dropped and counted. Values
may come before the route itself. Source: Vortex, matched sets. A hub has a table for its stages, a
router one for replies.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")
EARLY_MAX = 4096
"""Requests whose values may wait for their route; the oldest are dropped beyond."""


class MatchedSet(NamedTuple, Generic[Value]):
    """All values that a stage needs, of one request and one route."""

    stage: str
    values: Mapping[str, Value]


@dataclass(slots=True)
class JoinCounts:
    """What a table has dropped.

    Attributes:
        duplicates: values that it had already.
        stale: values, and routes, of a version that was replaced.
    """

    duplicates: int = 0
    stale: int = 0


@dataclass(slots=True)
class _Joins(Generic[Value]):
    version: int
    needs: dict[str, frozenset[str]] | None = None
    values: dict[str, dict[str, Value]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)


class JoinTable(Generic[Value]):
    """The joins of all requests at one place.

    Attributes:
        counts: what was dropped.
    """

    def __init__(self) -> None:
        self._requests: dict[str, _Joins[Value]] = {}
        self._early: dict[str, None] = {}
        self.counts = JoinCounts()

    def __len__(self) -> int:
        """Returns how many requests have joins."""
        return len(self._requests)

    def open(
        self, request: str, version: int, needs: Mapping[str, Collection[str]]
    ) -> list[MatchedSet[Value]]:
        """Opens the joins of a route; those of a lower version are dropped.

        Args:
            request: its id.
            version: of the route.
            needs: the stages that run here, and whose values each needs.

        Returns:
            The stages whose values are all here already; none for a route that is open or old.
        """
        known = {stage: frozenset(sources) for stage, sources in needs.items()}
        if request not in self._requests:  # as most: no value has come before its route
            joins = self._requests[request] = _Joins(version, known)
            return [] if all(known.values()) else self._begun(joins)
        found = self._at(request, version)
        if found is None:
            return []
        if found.needs is not None:
            self.counts.duplicates += 1
            return []
        found.needs = known
        self._early.pop(request, None)
        return self._begun(found)

    def _begun(self, joins: _Joins[Value]) -> list[MatchedSet[Value]]:
        found = (self._complete(joins, stage) for stage in joins.needs or ())
        return [one for one in found if one is not None]

    def add(
        self, request: str, version: int, stage: str, source: str, value: Value
    ) -> MatchedSet[Value] | None:
        """Adds a value for a stage; returns the stage's values if it was the last one."""
        joins = self._at(request, version)
        if joins is None:
            return None
        values = joins.values.setdefault(stage, {})
        if source in values or stage in joins.begun:
            self.counts.duplicates += 1
            return None
        values[source] = value
        return self._complete(joins, stage)

    def begin_early(
        self, request: str, version: int, stage: str, source: str
    ) -> dict[str, Value] | None:
        """Takes the values of a stage that only lacks the one of ``source``, which will not come.

        Returns:
            The values; None where others are missing too, or the stage has begun.
        """
        joins = self._requests.get(request)
        if joins is None or joins.version != version or joins.needs is None:
            return None
        values = joins.values.get(stage, {})
        needed = joins.needs.get(stage, frozenset())
        if stage in joins.begun or source not in needed or needed != {*values, source}:
            return None
        joins.begun.add(stage)
        return joins.values.pop(stage, {})

    def close(self, request: str) -> None:
        """Drops the joins of a request."""
        self._requests.pop(request, None)
        self._early.pop(request, None)

    def take_counts(self) -> dict[str, int]:
        """Returns what was dropped since the last time, by reason."""
        counts, self.counts = self.counts, JoinCounts()
        return {"duplicate": counts.duplicates, "stale": counts.stale}

    def _at(self, request: str, version: int) -> _Joins[Value] | None:
        joins = self._requests.get(request)
        if joins is None or joins.version < version:
            if joins is not None:
                self.counts.stale += sum(map(len, joins.values.values()))
            joins = self._requests[request] = _Joins(version)
            self._early[request] = None
            if len(self._early) > EARLY_MAX:
                self.counts.stale += 1
                self.close(next(iter(self._early)))
        elif joins.version > version:
            self.counts.stale += 1
            return None
        return joins

    @staticmethod
    def _complete(joins: _Joins[Value], stage: str) -> MatchedSet[Value] | None:
        if joins.needs is None or stage in joins.begun or stage not in joins.needs:
            return None
        values = joins.values.get(stage, {})
        if not joins.needs[stage] <= values.keys():
            return None
        joins.begun.add(stage)
        joins.values.pop(stage, None)
        return MatchedSet(stage, values)

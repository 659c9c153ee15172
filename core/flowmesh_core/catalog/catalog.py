"""The contracts that a control plane knows, by name and version."""

from collections.abc import Iterable, Iterator

from flowmesh_core.catalog.contract import EngineContract


class Catalog:
    """A read-only set of contracts: the newest of each name, and the previous versions.

    The highest (version, implementation) is the newest.
    """

    def __init__(self, contracts: Iterable[EngineContract]) -> None:
        self._by_version: dict[tuple[str, int, int], EngineContract] = {}
        self._newest: dict[str, EngineContract] = {}
        for c in contracts:
            self._by_version[c.name, c.version, c.implementation] = c
            newest = self._newest.get(c.name)
            if newest is None or (newest.version, newest.implementation) < (
                c.version,
                c.implementation,
            ):
                self._newest[c.name] = c

    def __iter__(self) -> Iterator[EngineContract]:
        """Yields the newest contracts in order of name."""
        return iter(sorted(self._newest.values(), key=lambda c: c.name))

    def names(self) -> list[str]:
        """Returns all engine names in order."""
        return sorted(self._newest)

    def newest(self, name: str) -> EngineContract | None:
        """Returns the newest contract of this name, or None."""
        return self._newest.get(name)

    def pinned(self, name: str, version: int, implementation: int) -> EngineContract | None:
        """Returns the contract of exactly these versions, or None where it is no longer known."""
        return self._by_version.get((name, version, implementation))

"""The contracts that a control plane knows, by name and version."""

from collections.abc import Iterable, Iterator

from flowmesh_core.catalog.contract import EngineContract, require_sound_additions


class Catalog:
    """A read-only set of contracts: the newest of each name, and the previous versions.

    The highest (version, implementation, minor) is the newest.
    """

    def __init__(self, contracts: Iterable[EngineContract]) -> None:
        """Indexes the contracts.

        Raises:
            ValueError: the additions of one would change the names of earlier actions.
        """
        self._by_version: dict[tuple[str, int, int], EngineContract] = {}
        self._newest: dict[str, EngineContract] = {}
        for c in contracts:
            require_sound_additions(c)
            key = (c.name, c.version, c.implementation)
            known = self._by_version.get(key)
            if known is None or known.minor < c.minor:
                self._by_version[key] = c
            newest = self._newest.get(c.name)
            if newest is None or _rank(newest) < _rank(c):
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

    def pinned(
        self, name: str, version: int, implementation: int, minor: int = 0
    ) -> EngineContract | None:
        """Returns the contract of exactly these versions, or None where it is not known.

        Args:
            name: the engine's name.
            version: the contract's version.
            implementation: the implementation's version.
            minor: the least minor that the contract must have.
        """
        found = self._by_version.get((name, version, implementation))
        return found if found is not None and found.minor >= minor else None


def _rank(contract: EngineContract) -> tuple[int, int, int]:
    return contract.version, contract.implementation, contract.minor

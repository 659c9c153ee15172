"""Engine contracts of plugins: the entry point group ``flowmesh.contracts``.

Each entry point names a callable that returns contracts; it is light to import. The project's own
engines use the same group where the distribution is installed, and are loaded without it too, so
that a checkout works.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from flowmesh_core.catalog.builtin import contracts as builtin_contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.errors import FlowMeshError

GROUP = "flowmesh.contracts"


def load_catalog(found: Iterable[EntryPoint] | None = None) -> Catalog:
    """Returns all contracts that are installed.

    Args:
        found: the entry points; those of the environment where None.

    Raises:
        FlowMeshError: a plugin cannot be imported, gives no contracts, or contradicts another.
    """
    contracts = {_key(c): c for c in builtin_contracts()}
    for point in entry_points(group=GROUP) if found is None else found:
        for contract in _contracts_of(point):
            known = contracts.setdefault(_key(contract), contract)
            if known != contract:
                raise FlowMeshError(
                    f"two plugins declare {contract.name} version {contract.version}."
                    f"{contract.implementation} differently",
                    where=f"plugin {point.name}",
                    remedy="remove one of them, or raise the version of the one that changed",
                )
    return Catalog(contracts.values())


def _contracts_of(point: EntryPoint) -> Iterable[EngineContract]:
    try:
        given = tuple(point.load()())
    except Exception as e:  # a plugin may fail in any way; the message must name it
        raise FlowMeshError(
            f"its contracts cannot be loaded: {type(e).__name__}: {e}",
            where=f"plugin {point.name} ({point.value})",
            remedy="repair or uninstall it",
        ) from e
    if not all(isinstance(c, EngineContract) for c in given):
        raise FlowMeshError(
            "it returns an object that is not an EngineContract",
            where=f"plugin {point.name} ({point.value})",
            remedy="return a sequence of flowmesh_core.catalog.contract.EngineContract",
        )
    return given


def _key(contract: EngineContract) -> tuple[str, int, int]:
    return contract.name, contract.version, contract.implementation

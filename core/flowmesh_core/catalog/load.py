"""The built-in contracts as a catalog.

Loading plugins reads the environment, so it belongs to the control plane and the worker; they start
from this, and tests use it.
"""

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract


def builtin_contracts() -> tuple[EngineContract, ...]:
    """Returns every built-in contract."""
    return contracts()


def builtin_catalog() -> Catalog:
    """Returns a catalog with only the built-in contracts."""
    return Catalog(contracts())

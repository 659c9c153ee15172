"""The built-in contracts as a catalog.

Loading plugins reads the environment, so it belongs to control and worker; this is what they start
from, and what tests use.
"""

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract


def builtin_contracts() -> tuple[EngineContract, ...]:
    """Every built-in contract."""
    return contracts()


def builtin_catalog() -> Catalog:
    """A catalog of the built-in contracts alone."""
    return Catalog(contracts())

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog


def builtin_catalog() -> Catalog:
    """Returns a catalog with only the built-in contracts."""
    return Catalog(contracts())

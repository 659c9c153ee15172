"""Lineage: what was made from what, by which run; a projection of plans and ledgers."""

from flowmesh_core.lineage.derivation import About, Derivation, Maker, derivations
from flowmesh_core.lineage.openlineage import Exported, run_events

__all__ = ["About", "Derivation", "Exported", "Maker", "derivations", "run_events"]

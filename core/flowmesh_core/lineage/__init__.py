"""Lineage: what was made from what, by which run; a projection of plans and ledgers."""

from flowmesh_core.lineage.derivation import Derivation, derivations

__all__ = ["Derivation", "derivations"]

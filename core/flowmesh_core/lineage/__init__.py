"""Lineage: what was made from what, by which run; a projection of plans and ledgers."""

from flowmesh_core.lineage.derivation import ArtifactInfo, Derivation, Producer, derivations
from flowmesh_core.lineage.openlineage import ExportInput, run_events

__all__ = ["ArtifactInfo", "Derivation", "ExportInput", "Producer", "derivations", "run_events"]

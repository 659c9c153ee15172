"""Lineage: which run made what from what; computed from plans and ledgers."""

from flowmesh_core.lineage.derivation import derivations
from flowmesh_core.lineage.openlineage import ExportInput, run_events

__all__ = ["ExportInput", "derivations", "run_events"]

"""Decides which worker runs each ready action: fair order, candidates, utility, local search.

The control plane calls :func:`decide` once per scheduling cycle, with a snapshot of the state
machine. ``fmesh explain`` calls :func:`candidates_of`. Placement never changes a snapshot.
"""

from flowmesh_core.placement.decide import decide
from flowmesh_core.placement.explain import candidates_of
from flowmesh_core.placement.fair_share import FairShare

__all__ = ["FairShare", "candidates_of", "decide"]

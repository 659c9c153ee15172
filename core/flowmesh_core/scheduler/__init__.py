"""Decides what runs where: order (fairness, priority), candidates, utility, decision.

The control plane calls :func:`decide` once a tick on the machine's snapshot; ``fmesh explain``
calls ``explain.candidates_of``; the provisioner reads ``backlog``.
"""

from flowmesh_core.scheduler.decide import decide
from flowmesh_core.scheduler.fairness import FairShare

__all__ = ["FairShare", "decide"]

"""Decides what runs where: order (fairness, priority), candidates, utility, decision.

The control plane calls :func:`decide` once a tick on the machine's snapshot; ``fmesh explain``
calls :func:`candidates_of`; the operator's pools read :func:`backlog_of`.
"""

from flowmesh_core.scheduler.backlog import Backlog, backlog_of
from flowmesh_core.scheduler.decide import decide
from flowmesh_core.scheduler.explain import candidates_of
from flowmesh_core.scheduler.fairness import FairShare
from flowmesh_core.scheduler.hysteresis import Hysteresis
from flowmesh_core.scheduler.pools import PoolView

__all__ = [
    "Backlog",
    "FairShare",
    "Hysteresis",
    "PoolView",
    "backlog_of",
    "candidates_of",
    "decide",
]

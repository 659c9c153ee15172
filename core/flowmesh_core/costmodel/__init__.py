"""Predicts an action's time and cost on a class of devices, by a prior corrected by observation.

The machine calls :meth:`~flowmesh_core.costmodel.model.CostModel.observe` at the end of every
attempt; the scheduler and the planner call ``predict``. Nothing here is durable: a lost model
starts again from the prior.
"""

from flowmesh_core.costmodel.model import CostKey, CostModel, Prediction, Rate
from flowmesh_core.costmodel.state import decode_model, encode_model

__all__ = ["CostKey", "CostModel", "Prediction", "Rate", "decode_model", "encode_model"]

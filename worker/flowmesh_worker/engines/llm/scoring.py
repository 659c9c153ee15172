"""Rewards and log-probabilities of one sequence. Imported only by hosts that load a model.

Sequences go through the model one at a time, so that a score depends only on its own text.
"""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch

from flowmesh_worker.engine_api import TreeInput
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.torch_model import TorchModel


def reward(model: TorchModel, adapter: TreeInput | None, ids: Sequence[int]) -> float:
    """Returns a reward model's score of a sequence.

    Args:
        model: loaded with the head ``score``.
        adapter: enabled for this call, or None.
        ids: the sequence, at least one token.

    Raises:
        AttemptError: bad input; the head has several outputs.
    """
    with torch.inference_mode():
        batch = torch.tensor([list(ids)], device=model.device)
        logits = model.with_adapter(adapter)(input_ids=batch).logits[0].float().cpu()
    if logits.numel() != 1:
        raise bad_input(
            f"the model classifies into {logits.numel()} labels",
            "method: reward needs a model with one output, such as those of train.reward",
        )
    return float(logits[0])


def log_probability(
    model: TorchModel, adapter: TreeInput | None, given: Sequence[int], target: Sequence[int]
) -> float:
    """Returns the natural logarithm of the probability that ``target`` follows ``given``.

    Args:
        model: loaded with the head ``language``.
        adapter: enabled for this call, or None.
        given: at least one token.
        target: at least one token.
    """
    network = model.with_adapter(adapter)
    with torch.inference_mode():
        batch = torch.tensor([[*given, *target[:-1]]], device=model.device)
        # Only the target's logits: those of a long prompt would use gigabytes.
        logits = network(input_ids=batch, **_last(model, len(target))).logits[0, -len(target) :]
        chosen = torch.tensor(list(target), device=model.device).unsqueeze(1)
        found = logits.float().log_softmax(-1).gather(1, chosen)[:, 0].cpu()
    return math.fsum(found.tolist())


def _last(model: TorchModel, count: int) -> dict[str, Any]:
    takes = inspect.signature(model.base.forward).parameters
    return {"logits_to_keep": count} if "logits_to_keep" in takes else {}

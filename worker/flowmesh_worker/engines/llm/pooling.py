"""Pools the vectors of a text's tokens into one. Imported only by hosts that load a model."""

from collections.abc import Sequence
from typing import Any

import torch


def embed(model: Any, ids: Sequence[int], *, pooling: str, normalize: bool) -> list[float]:
    """Returns the vector of one text.

    Args:
        model: a ``TorchModel`` loaded without its head.
        ids: the text's tokens, at least one.
        pooling: ``mean`` of all tokens, the ``last`` or the first (``cls``).
        normalize: whether to scale the vector to length 1.
    """
    with torch.inference_mode():
        batch = torch.tensor([list(ids)], device=model.device)
        hidden = model.with_adapter(None)(input_ids=batch).last_hidden_state[0].float()
        vector = {"mean": lambda h: h.mean(0), "last": lambda h: h[-1], "cls": lambda h: h[0]}[
            pooling
        ](hidden)
        if normalize:
            vector = torch.nn.functional.normalize(vector, dim=0)
    return [float(x) for x in vector.cpu()]

"""Generators of requests that begin at tokens: they skip the draws that these tokens took.

vLLM (0.27.1) gives each request a generator, and draws a number for each word of the vocabulary
from it for each token. So the tokens after those that a request begins at equal those of a request
that was not interrupted. ``use_in_core`` changes vLLM's class before the engine core is forked.
"""

from typing import Any

DRAWS = "flowmesh_draws"
"""The name in ``extra_args`` of a request of how many tokens were drawn, of how many words."""


def use_in_core() -> None:
    """Has engines forked from this process skip draws."""
    import torch  # noqa: PLC0415 - loaded by vLLM
    from vllm.v1.worker.gpu_input_batch import CachedRequestState  # noqa: PLC0415 - brings vLLM

    complete = CachedRequestState.__post_init__

    def complete_and_skip(self: Any) -> None:
        complete(self)
        params = self.sampling_params
        drawn = (params.extra_args or {}).get(DRAWS) if params is not None else None
        if drawn and self.generator is not None and params.top_k != 1:
            count, words = drawn
            noise = torch.empty(words, dtype=torch.float32, device=self.generator.device)
            for _ in range(count):
                noise.exponential_(generator=self.generator)

    if not hasattr(CachedRequestState, "_skips_draws"):
        CachedRequestState._skips_draws = True
        CachedRequestState.__post_init__ = complete_and_skip

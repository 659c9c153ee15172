"""Samples the seeded requests of a batch on a CPU, without noise that decides nothing.

All requests of our engines have a generator, and greedy ones are sampled with ``top_k=1`` (see
:mod:`openai_serving`). vLLM (0.27.1) draws a number for each word of the vocabulary twice then, on
one core: for the whole batch, and again for each request. Here a greedy request takes the most
likely word, and the others draw once, from their generators. Tokens are the same.

The rank of a token, which log-probabilities need, is counted by a function that vLLM compiles when
it is first called: a C++ compiler would run in the engine's process for seconds, and its memory
would count as that of the host, which is killed beyond its reservation.

``use_on_cpu`` replaces vLLM's functions before the engine's process is forked.
"""

from collections.abc import Mapping
from typing import Any

import torch
from vllm.v1.sample import sampler
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

_RAW = ("raw_logits", "raw_logprobs")
_vllm_sample = TopKTopPSampler.forward_cpu

Sampled = tuple[torch.Tensor, torch.Tensor | None]


def sample(
    self: Any,
    logits: torch.Tensor,
    generators: dict[int, torch.Generator],
    k: torch.Tensor | None,
    p: torch.Tensor | None,
) -> Sampled:
    """Returns a token for each row, and None: what vLLM's ``forward_cpu`` returns.

    Args:
        self: vLLM's sampler.
        logits: [rows, words], may be changed.
        generators: by row.
        k: how many of the most likely words each row may take; None if no row has a limit.
        p: the probability of the words that each row may take; None if no row has a limit.
    """
    is_seeded = len(generators) == logits.shape[0]
    if not is_seeded or self.use_fp64_gumbel or self.logprobs_mode not in _RAW:
        return _vllm_sample(self, logits, generators, k, p)  # type: ignore[no-any-return]
    if k is None:
        return _drawn(logits, generators, k, p), None
    is_greedy = k == 1
    if not bool(is_greedy.any()):
        return _drawn(logits, generators, k, p), None
    tokens = logits.argmax(dim=-1)
    rows = (~is_greedy).nonzero().flatten()
    if len(rows):
        own = {number: generators[row] for number, row in enumerate(rows.tolist())}
        tokens[rows] = _drawn(logits[rows], own, k[rows], None if p is None else p[rows])
    return tokens, None


def _drawn(
    logits: torch.Tensor,
    generators: Mapping[int, torch.Generator],
    k: torch.Tensor | None,
    p: torch.Tensor | None,
) -> torch.Tensor:
    logits = topk_topp_sampler.apply_top_k_top_p(logits, k, p)
    probabilities = logits.softmax(dim=-1, dtype=torch.float32)
    noise = torch.empty_like(probabilities)
    for row, generator in generators.items():
        noise[row].exponential_(generator=generator)
    tokens: torch.Tensor = topk_topp_sampler.sample_with_exponential_noise(probabilities, noise)
    return tokens


def ranks(logprobs: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Returns the rank of a word in each row: what vLLM's ``batched_count_greater_than`` returns.

    Args:
        logprobs: [rows, words].
        chosen: [rows, 1], the log-probabilities of the words.
    """
    return (logprobs >= chosen).sum(-1)


def use_on_cpu() -> None:
    """Has engines of this process, and of those forked from it, use these functions."""
    TopKTopPSampler.forward_cpu = sample
    sampler.batched_count_greater_than = ranks

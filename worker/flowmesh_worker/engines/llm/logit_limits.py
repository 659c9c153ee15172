"""Changes the logits of one request before a token is chosen: penalties, and tokens left out.

Used by the backend on transformers, so that it honours these parameters as vLLM does: the order and
the formulas are those of vLLM's sampler (0.27.1), and a greedy request gets equal tokens from both.
Imported only by hosts that load a model.
"""

from collections.abc import Sequence, Set
from typing import Any

import torch

from flowmesh_worker.engines.llm.requests import Sampling


def limit(
    logits: Any,
    sampling: Sampling,
    prompt: Sequence[int],
    tokens: Sequence[int],
    ends: Set[int],
    bad_words: Sequence[Sequence[int]],
) -> None:
    """Applies a request's parameters to its logits.

    Args:
        logits: float32 on the CPU, shape (vocabulary,); changed in place.
        sampling: the parameters.
        prompt: the prompt's tokens.
        tokens: generated so far.
        ends: tokens that end the completion.
        bad_words: of :func:`token_sequences`.
    """
    left_out = [word[-1] for word in bad_words if _ends_with(tokens, word[:-1])]
    if len(tokens) < sampling.min_tokens:
        left_out += ends
    if sampling.no_repeat_ngram:
        left_out += _repeating([*prompt, *tokens], sampling.no_repeat_ngram)
    if left_out:
        logits[[t for t in left_out if t < logits.shape[-1]]] = -torch.inf
    _penalise(logits, sampling, prompt, tokens)


def token_sequences(words: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Returns the tokens of texts that a completion does not have.

    Each has two forms, at a text's beginning and after a space, as tokenizers write them; the
    second only where it begins with another token and is not longer.
    """
    found: list[list[int]] = []
    for word in words:
        plain = tokenizer.encode(word.lstrip(), add_special_tokens=False)
        spaced = tokenizer.encode(f" {word.lstrip()}", add_special_tokens=False)
        found.append(plain)
        if spaced[0] != plain[0] and len(spaced) == len(plain):
            found.append(spaced)
    return [tokens for tokens in found if tokens]


def _ends_with(tokens: Sequence[int], end: Sequence[int]) -> bool:
    return not end or list(tokens[-len(end) :]) == list(end)


def _repeating(tokens: Sequence[int], size: int) -> list[int]:
    """Returns the tokens that would make the last ``size`` tokens occur a second time."""
    if len(tokens) < size:
        return []
    begin = list(tokens[len(tokens) - size + 1 :])
    places = range(len(tokens) - size + 1)
    return [tokens[at + size - 1] for at in places if list(tokens[at : at + size - 1]) == begin]


def _penalise(
    logits: Any, sampling: Sampling, prompt: Sequence[int], tokens: Sequence[int]
) -> None:
    words = logits.shape[-1]
    if sampling.repetition_penalty != 1.0:
        seen = torch.zeros(words, dtype=torch.bool)
        seen[[t for t in (*prompt, *tokens) if t < words]] = True
        weakened = torch.where(
            logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty
        )
        logits.copy_(torch.where(seen, weakened, logits))
    if tokens and (sampling.frequency_penalty or sampling.presence_penalty):
        counts = torch.bincount(torch.tensor(list(tokens)), minlength=words).to(logits.dtype)
        logits -= sampling.frequency_penalty * counts
        logits -= sampling.presence_penalty * (counts > 0)

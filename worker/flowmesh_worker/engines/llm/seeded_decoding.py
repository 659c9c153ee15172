"""Decodes completions with transformers, each with its own seeded generator.

One generator for each request, instead of the library's global one, makes a sample depend only on
its own seed. Imported only by hosts that load a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flowmesh_worker.engines.llm.logit_limits import limit, token_sequences
from flowmesh_worker.engines.llm.requests import Completion, Request, Sampling
from flowmesh_worker.engines.llm.torch_model import TorchModel


@dataclass(slots=True)
class SampledSequence:
    """A request while it is decoded.

    Attributes:
        request: the request.
        grew: called for every new token, in the decoding thread.
        stopped: set when the request is cancelled.
        tokens: generated so far.
        finish_reason: empty while it runs.
        text_end: where a stop string cuts the text; -1 without one.
        ended_by_token: whether a stop token of the request ended it.
        bad_words: the tokens of texts that it does not have; None before its first token.
    """

    request: Request
    grew: Callable[[int], None]
    stopped: bool = False
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = ""
    text_end: int = -1
    ended_by_token: bool = False
    bad_words: list[list[int]] | None = None


def draw_together(
    model: TorchModel, eos: frozenset[int], draws: Sequence[SampledSequence], context_length: int
) -> list[Completion]:
    """Decodes requests with the same adapter in one batch, padded on the left.

    Args:
        model: the model.
        eos: tokens that end a completion.
        draws: at least one; a single one is not padded, so its result is batch-invariant.
        context_length: the maximum tokens of prompt and completion.

    Returns:
        One completion for each request, in order; a stopped one is cut off.
    """
    network = model.with_adapter(draws[0].request.adapter)
    ids, mask = _padded(draws, model.device)
    generators = [torch.Generator().manual_seed(d.request.seed) for d in draws]
    cache: Any = None
    with torch.inference_mode():
        while any(not d.finish_reason and not d.stopped for d in draws):
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            out = network(
                input_ids=ids,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            logits = out.logits[:, -1, :].float().cpu()
            chosen = [
                _advance(d, logits[i], generators[i], eos, context_length, model.tokenizer)
                for i, d in enumerate(draws)
            ]
            ids = torch.tensor(chosen, device=model.device).unsqueeze(1)
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return [_completion(d, model.tokenizer) for d in draws]


def choose(logits: Any, sampling: Sampling, generator: Any) -> int:
    """Samples one token.

    Args:
        logits: float32 on the CPU, shape (vocabulary,); changed in place.
        sampling: the parameters.
        generator: the request's own.
    """
    logits = logits.div_(sampling.temperature)
    if sampling.min_p > 0.0:
        probabilities = logits.softmax(-1)
        logits.masked_fill_(probabilities < sampling.min_p * probabilities.max(), -torch.inf)
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k).values[-1]
        logits.masked_fill_(logits < least, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        logits[order[before >= sampling.top_p]] = -torch.inf
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return int(logits.softmax(-1).div_(noise).argmax())


def _advance(
    draw: SampledSequence,
    logits: Any,
    generator: Any,
    eos: frozenset[int],
    context_length: int,
    tokenizer: Any,
) -> int:
    if draw.finish_reason or draw.stopped:
        return 0
    sampling = draw.request.sampling
    ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else eos)
    if draw.bad_words is None:
        draw.bad_words = token_sequences(sampling.bad_words, tokenizer)
    limit(logits, sampling, draw.request.token_ids, draw.tokens, ends, draw.bad_words)
    token = choose(logits, sampling, generator)
    draw.tokens.append(token)
    draw.grew(1)
    is_long_enough = len(draw.tokens) >= sampling.min_tokens
    if token in ends and is_long_enough:
        draw.finish_reason = "stop"
        draw.ended_by_token = token in sampling.stop_token_ids
    elif sampling.stop and (end := _stop_at(draw.tokens, sampling, tokenizer)) >= 0:
        draw.finish_reason, draw.text_end = "stop", end
    elif (
        len(draw.tokens) >= sampling.max_tokens
        or len(draw.request.token_ids) + len(draw.tokens) >= context_length
    ):
        draw.finish_reason = "length"
    return token


def _stop_at(tokens: list[int], sampling: Sampling, tokenizer: Any) -> int:
    """Returns where the first stop string ends the text; -1 where there is none.

    One that lies within the first ``min_tokens`` tokens does not count.
    """
    if len(tokens) <= sampling.min_tokens:
        return -1
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    first = tokenizer.decode(tokens[: sampling.min_tokens], skip_special_tokens=True)
    found = [
        at + (len(s) if sampling.include_stop else 0)
        for s in sampling.stop
        if (at := text.find(s, max(0, len(first) - len(s) + 1))) >= 0
    ]
    return min(found, default=-1)


def _completion(draw: SampledSequence, tokenizer: Any) -> Completion:
    left_out = draw.ended_by_token and not draw.request.sampling.include_stop
    tokens = draw.tokens[:-1] if left_out else draw.tokens
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    if draw.text_end >= 0:
        text = text[: draw.text_end]
    return Completion(text, draw.finish_reason or "length", len(draw.tokens))


def _padded(draws: Sequence[SampledSequence], device: Any) -> tuple[Any, Any]:
    width = max(len(d.request.token_ids) for d in draws)
    ids = torch.zeros((len(draws), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, d in enumerate(draws):
        own = torch.tensor(list(d.request.token_ids))
        ids[i, width - len(own) :] = own
        mask[i, width - len(own) :] = 1
    return ids.to(device), mask.to(device)

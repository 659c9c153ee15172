"""The types between an engine and a backend: a request for one sample, and its completion.

A backend is a library that runs a model (vLLM, transformers). It gets requests of many actions at
once and does not know rows, ports or workflows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from blake3 import blake3

from flowmesh_worker.engine_api import TreeInput

_SEED_TAG = b"flowmesh/sample-seed/1\0"
_SEED_BITS = 63


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are sampled.

    Attributes:
        temperature: above 0; a greedy choice is ``top_k=1`` at temperature 1.
        top_p: in (0, 1].
        top_k: 0 for all tokens.
        min_p: in [0, 1].
        max_tokens: limit of a completion.
        stop: strings that end it and are not part of it.
        json_schema: what the completion must satisfy, or None.
        repetition_penalty: divides (or, below 0, multiplies) logits of tokens of prompt and
            completion; 1 leaves them.
        presence_penalty: taken off the logits of tokens of the completion.
        frequency_penalty: likewise, as often as each occurs.
        min_tokens: nothing but ``max_tokens`` ends a shorter completion.
        stop_token_ids: tokens that end it.
        bad_words: texts that it does not have.
        include_stop: whether what ended it is part of it.
        ignore_eos: whether the model's end tokens are tokens as any other.
        keep_special_tokens: whether its text has special tokens too, as parsers of calls need.
        no_repeat_ngram: tokens of which no sequence occurs twice; 0 for no limit.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    no_repeat_ngram: int = 0
    keep_special_tokens: bool = False

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "Sampling":
        """Converts the parameters of ``llm.generate``.

        Greedy decoding is sampling with ``top_k=1`` and a seed: a request without a seed would make
        vLLM on the CPU ignore the seeds of its whole batch.
        """
        temperature, top_p = float(params.get("temperature", 1.0)), float(params.get("topP", 1.0))
        tail: dict[str, Any] = {
            "max_tokens": int(params.get("maxTokens", 256)),
            "stop": tuple(params.get("stop") or ()),
            "json_schema": params.get("jsonSchema"),
            "repetition_penalty": float(params.get("repetitionPenalty", 1.0)),
            "presence_penalty": float(params.get("presencePenalty", 0.0)),
            "frequency_penalty": float(params.get("frequencyPenalty", 0.0)),
            "min_tokens": int(params.get("minTokens", 0)),
            "stop_token_ids": tuple(params.get("stopTokenIds") or ()),
            "bad_words": tuple(params.get("badWords") or ()),
            "include_stop": bool(params.get("includeStop", False)),
            "ignore_eos": bool(params.get("ignoreEos", False)),
            "no_repeat_ngram": int(params.get("noRepeatNgram", 0)),
        }
        if temperature == 0.0 or top_p == 0.0:
            return cls(temperature=1.0, top_k=1, **tail)
        return cls(
            temperature=temperature,
            top_p=top_p,
            top_k=int(params.get("topK", 0)),
            min_p=float(params.get("minP", 0.0)),
            **tail,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one sample.

    Attributes:
        id: unique in the engine instance.
        token_ids: the prompt.
        seed: this sample's own seed, at least 0, below 2^63.
        sampling: how to sample tokens.
        priority: higher first.
        cache_salt: requests share cached prefixes only if this is equal.
        adapter: a LoRA adapter, or None.
    """

    id: str
    token_ids: Sequence[int]
    seed: int
    sampling: Sampling
    priority: int = 0
    cache_salt: str = ""
    adapter: TreeInput | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of a request; ``finish_reason`` is ``stop`` or ``length``."""

    text: str
    finish_reason: str
    tokens_out: int


class Backend(Protocol):
    """A library with a loaded model. ``complete`` is called concurrently on one asyncio loop."""

    tokenizer: Any
    context_length: int

    async def complete(self, request: Request, grew: Callable[[int], None]) -> Completion:
        """Generates one sample; cancelling stops it.

        Args:
            request: the request.
            grew: called with the number of new tokens as they are generated.

        Raises:
            AttemptError: for this request only, or of kind host-crashed for the instance.
        """
        ...

    async def close(self) -> None:
        """Frees the model."""
        ...


def sample_seed(step_seed: int, rendered: bytes, sample: int) -> int:
    """Returns the seed of a sample: H(step seed, rendered request, sample number).

    Equal requests give equal samples in every chunk, row and batch.
    """
    hasher = blake3(_SEED_TAG)
    hasher.update(b"%d\0%d\0" % (step_seed, sample))
    hasher.update(rendered)
    return int.from_bytes(hasher.digest(8), "big") >> (64 - _SEED_BITS)

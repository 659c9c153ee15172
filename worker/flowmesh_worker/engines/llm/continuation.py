"""Continues requests of a running vLLM engine at tokens that an engine before it generated.

The engine core computes prompt and tokens as one longer prompt, as it does for a request that it
preempted. vLLM's output processor, in the host, has the request's own prompt and the tokens as its
output so far. So stop strings, usage and text are those of a request that nothing interrupted.
Used by ``llm.openai``; knows the classes of vLLM 0.27.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.openai.request import CHAT, COMPLETIONS
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.openai_serving import OpenAiCall
from flowmesh_worker.engines.llm.sampling_draws import DRAWS

_GREEDY_BELOW = 1e-5


class Continuation:
    """The requests of one engine that may be continued.

    Attributes:
        engine: names what the tokens of equal requests depend on, beside the model.
    """

    def __init__(self, engine: Any, settings: HostSettings, *, skips_draws: bool) -> None:
        """Wraps the engine's output processor.

        Args:
            engine: a running ``AsyncLLM``.
            settings: of its host.
            skips_draws: whether its generators skip the draws of tokens that a request begins at;
                without, only greedy requests are continued.
        """
        import torch  # noqa: PLC0415 - loaded by the engine
        import vllm  # noqa: PLC0415 - as above

        libraries = [vllm.__version__, torch.__version__]
        own = [*libraries, dict(settings.signature_params), len(settings.devices)]
        self.engine: str = digest_bytes(canonical_bytes(own))
        self._engine = engine
        self._skips_draws = skips_draws
        self._begins: dict[str, Sequence[int]] = {}
        self._add_request = engine.output_processor.add_request
        engine.output_processor.add_request = self._add

    def begin_at(self, call: OpenAiCall, tokens: Sequence[int]) -> None:
        """Has a request that is sent next begin at tokens, if it can be continued exactly."""
        name = _engine_id(call)
        if tokens and name and self._is_continuable(call.body):
            self._begins[name] = tokens

    def tokens(self, call: OpenAiCall) -> Sequence[int]:
        """Returns the tokens of an unfinished request so far; empty if it cannot be continued."""
        if not self._is_continuable(call.body):
            return ()
        processor = self._engine.output_processor
        names = processor.external_req_ids.get(_engine_id(call), ())
        states = [processor.request_states[n] for n in names if n in processor.request_states]
        return states[0].detokenizer.output_token_ids if len(states) == 1 else ()

    def _is_continuable(self, body: Mapping[str, Any]) -> bool:
        """Whether tokens alone decide how a request goes on.

        Penalties and grammars read what was generated and not the prompt; log-probabilities of
        tokens before would be missing; and several choices are several requests of the engine.
        """
        form = (body.get("response_format") or {}).get("type", "text")
        plain = form == "text" and body.get("n", 1) == 1 and isinstance(body.get("prompt", ""), str)
        reads_output = body.get("frequency_penalty") or body.get("presence_penalty")
        has_logprobs = body.get("logprobs") is not None and body["logprobs"] is not False
        if not plain or reads_output or has_logprobs:
            return False
        return self._skips_draws or float(body.get("temperature", 1.0)) < _GREEDY_BELOW

    def _add(self, request: Any, prompt: Any, *more: Any, **named: Any) -> None:
        tokens = self._begins.pop(request.external_req_id, None)
        self._add_request(request, prompt, *more, **named)
        if tokens is None or not self._fits(request, tokens):
            return
        state = self._engine.output_processor.request_states[request.request_id]
        state.detokenizer.update(list(tokens), False)
        params = copy.copy(request.sampling_params)
        params.max_tokens -= len(tokens)
        words = self._engine.model_config.get_vocab_size()
        params.extra_args = {**(params.extra_args or {}), DRAWS: [len(tokens), words]}
        request.sampling_params = params
        request.prompt_token_ids = [*request.prompt_token_ids, *tokens]

    def _fits(self, request: Any, tokens: Sequence[int]) -> bool:
        """Whether tokens are ones of the model, and fewer than the request may have."""
        config = self._engine.model_config
        words = config.get_vocab_size()
        return (
            len(tokens) < request.sampling_params.max_tokens
            and len(request.prompt_token_ids) + len(tokens) < config.max_model_len
            and all(0 <= token < words for token in tokens)
        )


def _engine_id(call: OpenAiCall) -> str:
    """Returns the engine's name of a request with one prompt."""
    names = {CHAT: f"chatcmpl-{call.request_id}", COMPLETIONS: f"cmpl-{call.request_id}-0"}
    return names.get(call.path, "")

"""Checks the body of a request to OpenAI's API against an allow-list of parameters.

Called for each line of a batch, by the engine ``llm.openai``, and for online requests. An engine is
shared by tenants, and vLLM reads more from a body than OpenAI does: a chat template, a priority, a
cache salt, addresses of images. So a parameter that is not listed here is an error, not ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from flowmesh_core.openai.chat import (
    messages,
    response_format,
    stream_options,
    tool_choice,
    tools,
)
from flowmesh_core.openai.errors import OpenAiError, invalid_value, missing_parameter
from flowmesh_core.openai.parameters import (
    INT64_MAX,
    INT64_MIN,
    Check,
    boolean,
    choice,
    integer,
    number,
    require_members,
    text,
    text_or_list,
)

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
ENDPOINTS = (CHAT, COMPLETIONS, EMBEDDINGS)
MAX_CHOICES = 8
MAX_TOP_LOGPROBS = 20
_MAX_TOKENS = 1_000_000
_STOPS = 4
_PROMPTS = 32
_INPUTS = 2048
_DIMENSIONS = 65_536

_SAMPLED: dict[str, Check] = {
    "model": text,
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "max_tokens": integer(1, _MAX_TOKENS),
    "n": integer(1, MAX_CHOICES),
    "stop": text_or_list(_STOPS),
    "stream": boolean,
    "stream_options": stream_options,
    "seed": integer(INT64_MIN, INT64_MAX),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "user": text,
}
_PARAMETERS: dict[str, dict[str, Check]] = {
    CHAT: {
        **_SAMPLED,
        "messages": messages,
        "max_completion_tokens": integer(1, _MAX_TOKENS),
        "logprobs": boolean,
        "top_logprobs": integer(0, MAX_TOP_LOGPROBS),
        "response_format": response_format,
        "tools": tools,
        "tool_choice": tool_choice,
    },
    COMPLETIONS: {
        **_SAMPLED,
        "prompt": text_or_list(_PROMPTS, 1),
        "logprobs": integer(0, MAX_TOP_LOGPROBS),
    },
    EMBEDDINGS: {
        "model": text,
        "input": text_or_list(_INPUTS, 1),
        "encoding_format": choice("float", "base64"),
        "dimensions": integer(1, _DIMENSIONS),
        "user": text,
    },
}
_REQUIRED = {CHAT: "messages", COMPLETIONS: "prompt", EMBEDDINGS: "input"}
_NOT_FOUND = 404
MAX_BODY_BYTES = 2_000_000
"""The longest body, so that no prompt occupies an engine's tokenizer for seconds."""


def parameter_names(path: str) -> frozenset[str]:
    """Returns the parameters of an endpoint."""
    return frozenset(_PARAMETERS[path])


@dataclass(frozen=True, slots=True)
class OpenAiRequest:
    """A checked request.

    Attributes:
        path: one of :data:`ENDPOINTS`.
        model: the model's name as the body gives it.
        body: the parameters that are set, the model's name among them.
    """

    path: str
    model: str
    body: Mapping[str, Any]

    @property
    def is_stream(self) -> bool:
        """Whether the response is a stream of events."""
        return bool(self.body.get("stream"))

    @property
    def answers(self) -> int:
        """How many answers are made: ``n`` for each prompt."""
        prompt = self.body.get("prompt")
        return int(self.body.get("n", 1)) * (len(prompt) if isinstance(prompt, list) else 1)


def check_request(path: str, body: Any, *, streams: bool = True) -> OpenAiRequest:
    """Checks the body of a request.

    Args:
        path: such as ``/v1/chat/completions``.
        body: decoded JSON.
        streams: whether the response may be a stream; a batch has none.

    Returns:
        The request; parameters that are null are left out.

    Raises:
        OpenAiError: in OpenAI's words; names the parameter.
    """
    checks = _PARAMETERS.get(path)
    if checks is None:
        raise OpenAiError(
            f"Invalid URL (POST {path[:80]}); this API has {', '.join(ENDPOINTS)}",
            status=_NOT_FOUND,
        )
    require_members(body, "", checks, "model", _REQUIRED[path])
    if not body["model"]:
        raise missing_parameter("model")
    _check_pairs(body)
    if body.get("stream") and not streams:
        raise invalid_value("stream", "a batch has whole responses.")
    try:
        size = len(orjson.dumps(body))
    except TypeError as e:  # an integer of more than 64 bits, or very deep nesting
        raise invalid_value("body", f"it cannot be passed on as JSON ({e}).") from None
    if size > MAX_BODY_BYTES:
        raise invalid_value("body", f"{size} bytes, of at most {MAX_BODY_BYTES}.", "too_large")
    return OpenAiRequest(path, body["model"], {k: v for k, v in body.items() if v is not None})


def _check_pairs(body: Mapping[str, Any]) -> None:
    """Refuses parameters that contradict each other."""
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise invalid_value("top_logprobs", "it is allowed only where 'logprobs' is true.")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise invalid_value("stream_options", "it is allowed only where 'stream' is true.")
    if body.get("tool_choice") is not None and not body.get("tools"):
        raise invalid_value("tool_choice", "it is allowed only where 'tools' are specified.")

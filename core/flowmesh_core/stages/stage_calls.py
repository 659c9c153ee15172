"""What a stage asks of an engine, and what its value is: between our names and OpenAI's."""

import re
from collections.abc import Mapping
from typing import Any

COMPLETION, FINISH_REASON = "completion", "finishReason"
ENGINE_FIELDS = (COMPLETION, FINISH_REASON)
"""The fields of an engine's value."""
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


def openai_body(params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Returns OpenAI's request for the parameters of a stage: ``maxTokens`` is ``max_tokens``."""
    body = {_HUMP.sub(lambda m: f"_{m[1].lower()}", name): params[name] for name in params}
    return {"model": model, **body}


def engine_value(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the value of a stage from OpenAI's answer to its request."""
    choice = answer["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return {COMPLETION: text or "", FINISH_REASON: choice.get("finish_reason")}

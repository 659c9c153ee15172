"""The names of OpenTelemetry's GenAI conventions that spans of attempts and calls carry.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/, which are not stable yet: the
names are those of release 1.37.0 and later (``gen_ai.provider.name`` in place of
``gen_ai.system``).
"""

from enum import StrEnum

from flowmesh_core.openai.request import CHAT, COMPLETIONS, EMBEDDINGS

PROVIDER = "flowmesh"
"""The provider of answers that engines of workers give."""


class SpanAttribute(StrEnum):
    """Attributes of spans, besides our own ``flowmesh.*``."""

    OPERATION = "gen_ai.operation.name"
    """`chat`, `text_completion`, `embeddings` or `invoke_agent`; `score` for `llm.score`"""
    PROVIDER = "gen_ai.provider.name"
    """`flowmesh`; `openai`, for the format of its API, where `http.chat` calls another server"""
    REQUEST_MODEL = "gen_ai.request.model"
    """the model that was asked for, where its name is known"""
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    """the most tokens of an answer, where the request limits it"""
    REQUEST_SEED = "gen_ai.request.seed"
    """the seed of the request"""
    REQUEST_TEMPERATURE = "gen_ai.request.temperature"
    """the temperature of the request"""
    REQUEST_TOP_P = "gen_ai.request.top_p"
    """the nucleus of the request's sampling"""
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    """tokens of the prompts"""
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    """tokens of the answers"""
    ERROR_TYPE = "error.type"
    """of what failed, the kind of failure, or the outcome of a call"""


OPERATIONS = {CHAT: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}
"""By path of OpenAI's API."""

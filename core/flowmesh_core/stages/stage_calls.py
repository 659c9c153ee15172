"""What a stage asks of an engine, and what its value is: between a stage's names and the engine's.

``llm.generate`` and ``llm.embed`` are asked by OpenAI's API, ``retrieve.topk`` by a path of its
own with the parameters of its contract.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowmesh_core.stages.service_graph import CHAT, COMPLETIONS, EMBEDDINGS

GENERATE, EMBED, TOPK = "llm.generate", "llm.embed", "retrieve.topk"
TOPK_PATH = "/retrieve/topk"
"""Where an engine host answers searches of its corpus."""
COMPLETION, FINISH_REASON, EMBEDDING, FOUND = "completion", "finishReason", "embedding", "found"
ROWS = "rows"
"""The input of a search: an object with a vector, as the value of a stage of ``llm.embed`` is."""
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")
_LOW = re.compile(r"_([a-z])")
_TEXT, _INPUT = "text", "input"
"""The text to embed: in a stage, and in OpenAI's request."""


class StageEngine(NamedTuple):
    """An engine that answers stages.

    Attributes:
        fields: of a stage's value.
        inputs: values that every call reads, by name.
        can_stream: whether an answer can be sent as it is made.
    """

    fields: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    can_stream: bool = False


_GENERATES = StageEngine((COMPLETION, FINISH_REASON), can_stream=True)
STAGE_ENGINES = {
    GENERATE: _GENERATES,
    EMBED: StageEngine((EMBEDDING,)),
    TOPK: StageEngine((FOUND,), (ROWS,)),
    "test.echo": _GENERATES,
}
"""All engines that answer stages; any other component is Python code. The last one is for tests."""


def stage_path(uses: str, params: Mapping[str, Any]) -> str:
    """Returns what an engine host is asked for by a stage; as a chat where the engine is unknown.

    Args:
        uses: the engine.
        params: ``with`` of the stage.
    """
    if uses == TOPK:
        return TOPK_PATH
    if uses == EMBED:
        return EMBEDDINGS
    return COMPLETIONS if "prompt" in params else CHAT


def openai_body(path: str, params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Returns OpenAI's request for the parameters of a stage: ``maxTokens`` is ``max_tokens``."""
    return {"model": model, **{engine_name(path, name): params[name] for name in params}}


def engine_name(path: str, name: str) -> str:
    """Returns the engine's name of a stage's parameter."""
    if path == TOPK_PATH:
        return name
    if path == EMBEDDINGS and name == _TEXT:
        return _INPUT
    return _HUMP.sub(lambda m: f"_{m[1].lower()}", name)


def stage_name(path: str, name: str) -> str:
    """Returns a stage's name of the engine's parameter; the opposite of :func:`engine_name`."""
    if path == TOPK_PATH:
        return name
    if path == EMBEDDINGS and name == _INPUT:
        return _TEXT
    return _LOW.sub(lambda m: m[1].upper(), name)


def engine_value(path: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the value of a stage from OpenAI's answer to its request."""
    if path == EMBEDDINGS:
        return {EMBEDDING: answer["data"][0]["embedding"]}
    choice = answer["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return {COMPLETION: text or "", FINISH_REASON: choice.get("finish_reason")}

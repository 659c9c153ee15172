"""Which library an engine of the catalog runs on: what its hosts import, and what else they do."""


def library_of(engine: str) -> str | None:
    """The library that a host of this engine imports; None where that is next to nothing."""
    if engine == "llm.embed":
        return "transformers"
    family = engine.partition(".")[0]
    return {"llm": "vllm", "train": "trl"}.get(family)

"""The library of an engine, which determines the start time of its hosts."""


def library_of(engine: str) -> str | None:
    """Returns the library that a host of this engine imports; None if its import is fast."""
    if engine == "llm.embed":
        return "transformers"
    family = engine.partition(".")[0]
    return {"llm": "vllm", "train": "trl"}.get(family)

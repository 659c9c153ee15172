"""Chooses the library that runs a model, from ``implementation`` and what is installed."""

import importlib.util
from dataclasses import replace

from flowmesh_core.catalog.engine_settings import MAX_MODEL_LEN
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.errors import bad_input, unplaceable
from flowmesh_worker.engines.llm.requests import Backend
from flowmesh_worker.engines.models.model_facts import ModelFacts

_LIBRARIES = ("vllm", "transformers")
_ALL_DTYPES = ("auto", "float32", "bfloat16", "float16")


def supported_variants(
    engine: str, device_class: str, *, vllm: str = "vllm", only_vllm: bool = False
) -> list[EngineVariant]:
    """Returns the variants that this installation serves, without importing a library.

    On a CPU vLLM's results are independent of the batch only in float32; transformers runs one
    request at a time if batch invariance is requested, in any dtype.

    Args:
        engine: the engine's name.
        device_class: ``cpu``, or a GPU's class.
        vllm: the name of vLLM in the identity field ``implementation``; empty for an engine without
            this field.
        only_vllm: whether the engine runs on vLLM alone.
    """
    found: list[EngineVariant] = []
    if _installed("vllm"):
        if device_class == "cpu":
            found.append(EngineVariant(engine, vllm, ("auto", "float32"), (True, False)))
            found.append(EngineVariant(engine, vllm, ("bfloat16", "float16"), (False,)))
        else:
            found.append(EngineVariant(engine, vllm, _ALL_DTYPES, (True, False)))
    if _installed("transformers") and not only_vllm:
        found.append(EngineVariant(engine, "transformers", _ALL_DTYPES, (True, False)))
    return found


def embedding_variants(engine: str) -> list[EngineVariant]:
    """Returns the variants for embeddings: any dtype, with each library that is installed."""
    return [
        EngineVariant(engine, library, _ALL_DTYPES) for library in _LIBRARIES if _installed(library)
    ]


def scoring_variants(engine: str) -> list[EngineVariant]:
    """Returns the variants for scores: rewards and log-probabilities need transformers.

    A judge on vLLM may not support one of these combinations; it then fails when it is loaded.
    """
    if not _installed("transformers"):
        return []
    return [
        EngineVariant(engine, library, _ALL_DTYPES) for library in _LIBRARIES if _installed(library)
    ]


async def start_backend(facts: ModelFacts, settings: HostSettings) -> Backend:
    """Loads a model with the signature's implementation.

    Raises:
        AttemptError: unplaceable, out of memory or bad input, with a remedy.
    """
    facts = bounded_facts(facts, settings)
    implementation = str(settings.signature_params.get("implementation", "vllm"))
    if not _installed(implementation):
        other = next(x for x in _LIBRARIES if x != implementation)
        raise unplaceable(
            f"this worker has no {implementation} installed",
            f"install the worker's extra, or set with.implementation: {other}",
        )
    if implementation == "vllm":
        from flowmesh_worker.engines.llm.vllm_backend import (  # noqa: PLC0415 - one of the two
            VllmBackend,
        )

        return await VllmBackend.start(facts, settings)
    from flowmesh_worker.engines.llm.transformers_backend import (  # noqa: PLC0415 - one of the two
        TransformersBackend,
    )

    return await TransformersBackend.start(facts, settings)


def bounded_facts(facts: ModelFacts, settings: HostSettings) -> ModelFacts:
    """Returns the model with the context that the step's ``engine.maxModelLen`` leaves it.

    Raises:
        AttemptError: bad input; the model has no such context.
    """
    most = (settings.signature_params.get("engine") or {}).get(MAX_MODEL_LEN)
    if most is None:
        return facts
    if int(most) > facts.context_length:
        raise bad_input(
            f"with.engine.maxModelLen is {most:,}, and the model reads {facts.context_length:,}"
            " tokens",
            "lower it; a longer context stands in the model's config.json",
        )
    return replace(facts, context_length=int(most))


def _installed(library: str) -> bool:
    return library in _LIBRARIES and importlib.util.find_spec(library) is not None

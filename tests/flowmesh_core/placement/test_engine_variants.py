"""The message for a combination that no worker offers."""

import pytest
from tests.flowmesh_core.placement.builders import worker

from flowmesh_core.placement.engine_variants import VariantRequest, problem
from flowmesh_core.protocol.messages import EngineVariant

CPU = (
    EngineVariant("llm.generate", "vllm", ("auto", "float32"), (True, False)),
    EngineVariant("llm.generate", "vllm", ("bfloat16", "float16"), (False,)),
)
TRANSFORMERS = EngineVariant("llm.generate", "transformers", ("auto", "float32", "bfloat16"))


def wish(dtype: str = "bfloat16", *, invariant: bool = True) -> VariantRequest:
    fields = {"implementation": "vllm", "dtype": dtype, "batchInvariant": invariant}
    return VariantRequest.of("llm.generate", fields)


@pytest.mark.parametrize(
    ("variants", "told"),
    [
        (CPU, "set with.dtype: float32 or with.batchInvariant: false, or add a pool that does"),
        (
            (*CPU, TRANSFORMERS),
            "set with.dtype: float32 or with.batchInvariant: false or with.implementation:"
            " transformers, or add a pool that does",
        ),
        (
            (EngineVariant("llm.generate", "x", ("float32",), (False,)),),
            "true; add a pool that does",
        ),
    ],
)
def test_the_variants_that_are_served_are_reported(
    variants: tuple[EngineVariant, ...], told: str
) -> None:
    shapes = [worker("w", variants=variants).shape]
    said = problem(wish(), shapes)
    assert said.startswith(
        "no worker serves llm.generate with implementation vllm, dtype bfloat16, batchInvariant"
    )
    assert said.endswith(told)


def test_no_problem_is_reported_if_a_worker_serves_the_variant_or_none_offers_the_engine() -> None:
    shapes = [worker("w", variants=CPU).shape]
    assert problem(wish("float32"), shapes) == problem(wish(invariant=False), shapes) == ""
    assert problem(wish(), [worker("w", engines={}).shape]) == problem(wish(), []) == ""


def test_a_worker_from_before_the_engine_had_implementations_serves_its_default() -> None:
    older = worker("w", variants=(EngineVariant("llm.embed", "", ("auto", "float32")),)).shape
    newer = worker("w", variants=(EngineVariant("llm.embed", "transformers", ("auto",)),)).shape
    usual = VariantRequest.of("llm.embed", {"implementation": "transformers", "dtype": "auto"})
    assert usual.met_by(older)
    assert usual.met_by(newer)
    batched = VariantRequest.of("llm.embed", {"implementation": "vllm", "dtype": "auto"})
    assert not batched.met_by(newer)

"""What is told of a combination that no worker serves."""

import pytest
from tests.flowmesh_core.scheduler.builders import worker

from flowmesh_core.protocol.messages import Honours
from flowmesh_core.scheduler.honouring import Wish, problem

CPU = (
    Honours("llm.generate", "vllm", ("auto", "float32"), (True, False)),
    Honours("llm.generate", "vllm", ("bfloat16", "float16"), (False,)),
)
TRANSFORMERS = Honours("llm.generate", "transformers", ("auto", "float32", "bfloat16"))


def wish(dtype: str = "bfloat16", *, invariant: bool = True) -> Wish:
    fields = {"implementation": "vllm", "dtype": dtype, "batchInvariant": invariant}
    return Wish.of("llm.generate", fields)


@pytest.mark.parametrize(
    ("honours", "told"),
    [
        (CPU, "set with.dtype: float32 or with.batchInvariant: false, or add a pool that does"),
        (
            (*CPU, TRANSFORMERS),
            "set with.dtype: float32 or with.batchInvariant: false or with.implementation:"
            " transformers, or add a pool that does",
        ),
        ((Honours("llm.generate", "x", ("float32",), (False,)),), "true; add a pool that does"),
    ],
)
def test_the_changes_that_are_served_are_told(honours: tuple[Honours, ...], told: str) -> None:
    shapes = [worker("w", honours=honours).shape]
    said = problem(wish(), shapes)
    assert said.startswith(
        "no worker serves llm.generate with implementation vllm, dtype bfloat16, batchInvariant"
    )
    assert said.endswith(told)


def test_nothing_is_told_where_one_serves_it_or_none_offers_the_engine() -> None:
    shapes = [worker("w", honours=CPU).shape]
    assert problem(wish("float32"), shapes) == problem(wish(invariant=False), shapes) == ""
    assert problem(wish(), [worker("w", engines={}).shape]) == problem(wish(), []) == ""

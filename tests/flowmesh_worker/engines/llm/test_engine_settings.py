"""The parameter engine.maxModelLen: a shorter context, never a longer one."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.backends import bounded_facts
from flowmesh_worker.engines.models.model_facts import ModelFacts

FACTS = ModelFacts(Path("unused"), "float32", 512, 1000, 64)


def context(**settings: Any) -> int:
    host = HostSettings((), 512, 1, {"engine": settings}, Path("unused"))
    return bounded_facts(FACTS, host).context_length


def test_a_step_may_shorten_the_models_context() -> None:
    assert context() == 512
    assert context(maxModelLen=128) == 128
    assert context(maxModelLen=512) == 512


def test_a_longer_context_than_the_models_is_refused() -> None:
    with pytest.raises(AttemptError, match="is 513, and the model reads 512 tokens") as caught:
        context(maxModelLen=513)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT

"""Spans of attempts that ask a language model, as OpenTelemetry's SDK collects them in memory."""

from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.machine import world
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_control.observability.otlp import _converter
from flowmesh_control.observability.spans import Span, SpanListener
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.graph.plan import ArtifactSource, Edge, Source, StepSource
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest

BASE = StepSource("inputs.base", "model")
STORED = Artifact("model", Digest("0" * 64), Digest("stored"))


@pytest.fixture
def contracts(monkeypatch: pytest.MonkeyPatch) -> dict[str, EngineContract]:
    """Lets worlds know the engines of the real catalog; returns them by name."""
    known = tuple(builtin_catalog())
    monkeypatch.setattr(world, "CONTRACTS", known)
    return {contract.name: contract for contract in known}


def attributes(
    contracts: dict[str, EngineContract],
    engine: str,
    *,
    source: Source | None = BASE,
    uri: str = "hf://Qwen/Qwen3-0.6B",
    outcome: str = "published",
    **params: Any,
) -> dict[str, Any]:
    """Returns what the span of an attempt of one step says, without ``flowmesh.*``."""
    there = World()
    edges = () if source is None else (Edge("model", "model", (source,)),)
    importing = step("inputs.base", uses=contracts["model.import"], uri=uri)
    training = step("tune", uses=contracts["train.sft"])
    asking = step("ask", *edges, uses=contracts[engine], **params)
    uid = there.submit(plan(importing, training, asking), "run-1", artifacts=[STORED])
    spans: list[Span] = []
    usage = Usage(units=12, tokens_in=7, tokens_out=5)
    SpanListener(there.machine.state, spans.append).settled(
        AttemptSettled(
            *("a-1", "0" * 64, engine, "w1", "cpu", outcome, "it broke", 1.0, 2.0),  # type: ignore[arg-type]
            usage=usage,
            subscribers=((uid, "ask"),),
        )
    )
    exporter = InMemorySpanExporter()
    exporter.export([_converter()(span, Resource.create()) for span in spans])
    [found] = exporter.get_finished_spans()
    assert found.attributes is not None
    return {k: v for k, v in found.attributes.items() if not k.startswith("flowmesh.")}


TOKENS = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5}
OURS = {"gen_ai.provider.name": "flowmesh", "gen_ai.request.model": "Qwen/Qwen3-0.6B", **TOKENS}
MESSAGES = [{"role": "user", "content": "Hello"}]


def test_a_chat_says_operation_model_parameters_and_tokens(
    contracts: dict[str, EngineContract],
) -> None:
    assert attributes(
        contracts, "llm.generate", messages=MESSAGES, maxTokens=64, temperature=0.7, seed=3
    ) == {
        **OURS,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.seed": 3,
    }


@pytest.mark.parametrize(
    ("engine", "params", "operation"),
    [
        ("llm.generate", {"prompt": "Q:"}, "text_completion"),
        ("llm.generate", {"messagesFrom": "chat"}, "chat"),
        ("llm.agent", {}, "invoke_agent"),
        ("llm.embed", {}, "embeddings"),
        ("llm.score", {"method": "judge"}, "chat"),
        ("llm.score", {"method": "logprob"}, "score"),
        ("llm.openai", {}, None),
    ],
)
def test_each_engine_that_asks_a_model_has_its_operation(
    contracts: dict[str, EngineContract], engine: str, params: Any, operation: str | None
) -> None:
    found = attributes(contracts, engine, **params)
    assert found.pop("gen_ai.operation.name", None) == operation
    assert found == OURS


def test_a_chat_with_another_server_names_the_model_there(
    contracts: dict[str, EngineContract],
) -> None:
    assert attributes(contracts, "http.chat", source=None, model="gpt-x") == {
        "gen_ai.provider.name": "openai",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-x",
        **TOKENS,
    }


@pytest.mark.parametrize(
    ("source", "uri", "name"),
    [
        (BASE, "builtin:smollm2-135m-instruct", "smollm2-135m-instruct"),
        (BASE, "https://user:password@example.com/model", None),
        (StepSource("tune", "adapter"), "", "tune.adapter"),
        (ArtifactSource("model", "cas:stored"), "", None),
        (None, "", None),
    ],
)
def test_a_model_is_named_where_its_name_is_public(
    contracts: dict[str, EngineContract], source: Source | None, uri: str, name: str | None
) -> None:
    found = attributes(contracts, "llm.embed", source=source, uri=uri)
    assert found.get("gen_ai.request.model") == name


def test_an_attempt_that_failed_says_how_and_other_engines_say_nothing(
    contracts: dict[str, EngineContract],
) -> None:
    found = attributes(contracts, "llm.embed", outcome="out-of-memory")
    assert found["error.type"] == "out-of-memory"
    assert attributes(contracts, "data.sql") == {}

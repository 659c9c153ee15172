"""What spans of attempts say in the names of OpenTelemetry's GenAI conventions.

Only engines that ask a language model have them. The tokens are the attempt's: all its rows and
samples together.
"""

from collections.abc import Iterator

from flowmesh_core.graph.plan import StepPlan, StepSource
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.model import Run
from flowmesh_core.openai.gen_ai import PROVIDER, SpanAttribute

Value = str | int | float | bool

_HTTP_CHAT = "http.chat"
_ENGINES = (_HTTP_CHAT, "llm.agent", "llm.embed", "llm.generate", "llm.openai", "llm.score")
_PARAMS = {
    "maxTokens": SpanAttribute.REQUEST_MAX_TOKENS,
    "seed": SpanAttribute.REQUEST_SEED,
    "temperature": SpanAttribute.REQUEST_TEMPERATURE,
    "topP": SpanAttribute.REQUEST_TOP_P,
}
_PUBLIC = ("builtin:", "hf://")
"""Beginnings of the addresses of models that are names; others may have credentials."""


def attributes(run: Run, step: StepPlan, attempt: AttemptSettled) -> dict[str, Value]:
    """Returns the attributes of an attempt of a step; none where it asks no language model."""
    return dict(_attributes(run, step, attempt)) if attempt.engine in _ENGINES else {}


def _attributes(run: Run, step: StepPlan, attempt: AttemptSettled) -> Iterator[tuple[str, Value]]:
    yield SpanAttribute.PROVIDER, "openai" if attempt.engine == _HTTP_CHAT else PROVIDER
    operation = _operation(step)
    if operation:
        yield SpanAttribute.OPERATION, operation
    model = _model(run, step)
    if model:
        yield SpanAttribute.REQUEST_MODEL, model
    for param, name in _PARAMS.items():
        value = step.params.get(param)
        if isinstance(value, int | float):
            yield name, value
    if attempt.usage is not None and (attempt.usage.tokens_in or attempt.usage.tokens_out):
        yield SpanAttribute.INPUT_TOKENS, attempt.usage.tokens_in
        yield SpanAttribute.OUTPUT_TOKENS, attempt.usage.tokens_out


def _operation(step: StepPlan) -> str:
    """Returns what a step's engine does; empty where each row says it."""
    match step.engine:
        case "llm.generate":
            is_chat = step.params.get("messages") or step.params.get("messagesFrom")
            return "chat" if is_chat else "text_completion"
        case "llm.score":
            return "chat" if step.params.get("method") == "judge" else "score"
        case "llm.openai":
            return ""
        case engine:
            return {"llm.agent": "invoke_agent", "llm.embed": "embeddings"}.get(engine, "chat")


def _model(run: Run, step: StepPlan) -> str:
    """Returns the name of a step's model; empty where it has none."""
    if step.engine == _HTTP_CHAT:
        return str(step.params.get("model", ""))
    sources = [s for edge in step.edges if edge.port == "model" for s in edge.sources]
    if len(sources) != 1 or not isinstance(sources[0], StepSource):
        return ""
    source = sources[0]
    uri = run.steps[source.step].plan.params.get("uri")
    if not uri:  # a model that another step of the workflow made
        return f"{source.step}.{source.port}"
    return next((uri.removeprefix(p) for p in _PUBLIC if uri.startswith(p)), "")

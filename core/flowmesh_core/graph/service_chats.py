"""Checks how a service with stages is offered as a chat model: what is asked, and what answers."""

from flowmesh_core.graph.engine_stages import Report
from flowmesh_core.spec.service import OpenAiSpec, ServiceSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.service_graph import REPLY, LoadedGraph, ServiceGraph
from flowmesh_core.stages.stage_calls import COMPLETION, FINISH_REASON
from flowmesh_core.stages.values import REQUEST, ValueReference, parse_reference

_STRING = "string"


def refuse_chat(spec: ServiceSpec, report: Report) -> None:
    """Reports fields of chats of a service without stages, which answers chats as its engine."""
    for name in ("question", "answer"):
        if spec.openai is not None and getattr(spec.openai, name):
            text = "a service without stages answers chats itself: leave it out, or add stages"
            report(("spec", "openai", name), text)


def check_chat(spec: ServiceSpec, graph: ServiceGraph, report: Report) -> None:
    """Reports what is wrong with the question and the answer of a service with stages.

    Without both it is offered as no chat model.

    Args:
        spec: of the service.
        graph: its stages, without problems.
        report: called with the keys and the message of every problem.
    """
    if spec.openai is None or not (spec.openai.question or spec.openai.answer):
        return
    if problem := _problem_of_question(spec, spec.openai, graph):
        report(("spec", "openai", "question"), problem)
    if problem := _problem_of_answer(spec, spec.openai):
        report(("spec", "openai", "answer"), problem)


def _problem_of_question(spec: ServiceSpec, openai: OpenAiSpec, graph: ServiceGraph) -> str:
    field = _field_of(openai.question, REQUEST)
    if not field:
        return (
            f"{openai.question!r} is not a field of the request: expected request.FIELD, such as"
            " request.question, which gets the last message of the user"
        )
    schema = spec.request.schema_
    known, required = schema.get("properties"), schema.get("required", [])
    if isinstance(known, dict):
        if field not in known:
            return f"request.schema has no property {field!r}{did_you_mean(field, known)}"
        kind = known[field].get("type", _STRING) if isinstance(known[field], dict) else _STRING
        if _STRING not in (kind if isinstance(kind, list) else [kind]):
            return f"request.{field} is of type {kind!r}: expected {_STRING!r}, as messages are"
    others = {f for f in required if isinstance(f, str)} | _fields_read(graph)
    if others - {field}:
        return f"a chat has no request.{min(others - {field})}, which the service needs"
    return ""


def _problem_of_answer(spec: ServiceSpec, openai: OpenAiSpec) -> str:
    field = _field_of(openai.answer, REPLY)
    if not field:
        return (
            f"{openai.answer!r} is not a field of the reply: expected reply.FIELD, such as"
            " reply.text"
        )
    if field not in spec.reply:
        return f"the reply has no field {field!r}{did_you_mean(field, spec.reply)}"
    value = parse_reference(spec.reply[field])
    if value is not None and _is_no_text(spec, value):
        return f"reply.{field} is {value}, which is not a text"
    return ""


def _is_no_text(spec: ServiceSpec, value: ValueReference) -> bool:
    """Returns whether a value can be no text; what Python code returns is not known."""
    stage = next((one for one in spec.stages if one.name == value.source), None)
    component = None if stage is None else spec.components.get(stage.component)
    if component is None or component.python is not None:
        return False
    return value.path not in ((COMPLETION,), (FINISH_REASON,))


def _fields_read(graph: ServiceGraph) -> set[str]:
    """Returns the fields of a request that stages or the reply read."""
    return set(LoadedGraph(graph).request_fields)


def _field_of(text: str, source: str) -> str:
    """Returns FIELD of SOURCE.FIELD; empty for any other text."""
    reference = parse_reference(text)
    is_field = reference is not None and reference.source == source and len(reference.path) == 1
    return reference.path[0] if reference is not None and is_field else ""

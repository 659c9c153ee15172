"""Compiles the stages of a service: where each value comes from, and in which order they run.

Called by :mod:`service_plan`, and by ``fmesh serve`` for its router. All problems are found at
once.
"""

from collections.abc import Mapping

from flowmesh_core.graph.compile_context import Keys
from flowmesh_core.graph.engine_stages import (
    CheckCall,
    Report,
    can_stream,
    check_engine_stage,
    engine_fields,
)
from flowmesh_core.graph.service_chats import check_chat, refuse_chat
from flowmesh_core.graph.service_groups import check_affinity
from flowmesh_core.graph.service_keys import check_keys, refuse_keys
from flowmesh_core.graph.service_requests import check_request_schema, request_field_problem
from flowmesh_core.graph.topology import find_cycle, order
from flowmesh_core.spec.service import ServiceSpec, StageSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.service_graph import (
    COMPONENTS_PATH,
    REPLY,
    ServiceGraph,
    Stage,
)
from flowmesh_core.stages.stage_calls import GENERATE, TOPK
from flowmesh_core.stages.values import (
    REQUEST,
    ValueReference,
    parse_reference,
    parse_tree,
    references_in,
)

_STAGES: Keys = ("spec", "stages")


def compile_stages(spec: ServiceSpec, report: Report, check_call: CheckCall) -> ServiceGraph | None:
    """Compiles the stages of a service; None where it has none, or they have problems.

    Args:
        spec: of the service.
        report: called with the keys and the message of every problem.
        check_call: checks what a stage asks of an engine.
    """
    if not spec.stages:
        if spec.reply:
            report(("spec", "reply"), "reply needs stages: add stages, or leave it out")
        if spec.request.schema_:
            text = "request.schema needs stages: add stages, or leave it out"
            report(("spec", "request", "schema"), text)
        _require_one_engine(spec, report)
        refuse_keys(spec, report)
        refuse_chat(spec, report)
        _check_token_targets(spec, report)
        _refuse_scale(spec, report)
        return None
    found = _Problems(report)
    _refuse_adapters(spec, found.add)
    _check_token_targets(spec, found.add)
    stages: dict[str, Stage] = {}
    needs: dict[str, list[str]] = {}
    for index, one in enumerate(spec.stages):
        keys = (*_STAGES, index)
        if one.name in stages or one.name in (REQUEST, REPLY):
            taken = "is taken" if one.name in stages else "is reserved"
            found.add((*keys, "name"), f"the name {one.name!r} {taken}: expected another one")
            continue
        stage, sources = _stage(spec, one, keys, found.add, check_call)
        stages[one.name], needs[one.name] = stage, sources
    check_request_schema(spec, found.add)
    check_affinity(spec, found.add)
    check_keys(spec, found.add)
    _check_reply(spec, found.add)
    _check_streams(spec, needs, found.add)
    _check_use(spec, stages, needs, found.add)
    ordered, _ = order({n: [s for s in of if s != REQUEST] for n, of in needs.items()})
    if len(ordered) < len(stages):
        cycle = find_cycle({n: [s for s in of if s != REQUEST] for n, of in needs.items()}, ordered)
        found.add(_STAGES, f"stages wait for each other: {' -> '.join(cycle)}")
    if found.count:
        return None
    graph = ServiceGraph(tuple(stages[name] for name in ordered), dict(spec.reply))
    check_chat(spec, graph, found.add)
    return None if found.count else graph


class _Problems:
    def __init__(self, report: Report) -> None:
        self.count = 0
        self._report = report

    def add(self, keys: Keys, message: str) -> None:
        self.count += 1
        self._report(keys, message)


def _require_one_engine(spec: ServiceSpec, report: Report) -> None:
    if len(spec.components) > 1:
        report(
            ("spec", "components"),
            "more than one component: add stages that say how they are called",
        )
    for name, component in spec.components.items():
        if component.python is not None:
            text = "a Python component serves only stages: add stages and a reply"
            report(("spec", "components", name, "python"), text)
        elif component.uses == TOPK:
            text = f"{TOPK} serves only stages: add stages and a reply"
            report(("spec", "components", name, "uses"), text)


def _refuse_scale(spec: ServiceSpec, report: Report) -> None:
    if spec.slo.scale is not None:
        text = (
            "scale needs stages: expected latency, since the time of a model's call depends on the"
            " length of its answer"
        )
        report(("spec", "slo", "scale"), text)


def _refuse_adapters(spec: ServiceSpec, report: Report) -> None:
    for name, component in spec.components.items():
        if component.adapters:
            text = "a stage cannot choose an adapter: merge it into the model with model.merge"
            report(("spec", "components", name, "adapters"), text)


def _check_token_targets(spec: ServiceSpec, report: Report) -> None:
    """Reports targets of tokens that no engine could keep, or that are not measured."""
    generates = any(one.uses == GENERATE for one in spec.components.values())
    for name, target in (("ttft", spec.slo.ttft), ("tpot", spec.slo.tpot)):
        if target is None:
            continue
        if spec.stages:
            text = "is for a service without stages: expected latency, the time until the reply"
        elif not generates:
            text = f"is for a service whose component uses {GENERATE}"
        else:
            continue
        report(("spec", "slo", name), f"{name} {text}")


def _stage(
    spec: ServiceSpec, one: StageSpec, keys: Keys, report: Report, check_call: CheckCall
) -> tuple[Stage, list[str]]:
    """Returns a stage, and the stages (or ``request``) whose values it needs."""
    references: list[tuple[Keys, ValueReference]] = []
    for name, text in one.inputs.items():
        reference = parse_reference(text)
        if reference is None:
            found = f"{text!r} is not a reference: expected request.FIELD, STAGE or STAGE.FIELD"
            report((*keys, "inputs", name), found)
        else:
            references.append(((*keys, "inputs", name), reference))
    for name, value in one.with_.items():
        try:
            references += [((*keys, "with", name), r) for r in references_in(parse_tree(value))]
        except ValueError as error:
            report((*keys, "with", name), str(error))
    for where, reference in references:
        _check_reference(spec, reference, where, report, itself=one.name)
    component = spec.components.get(one.component)
    path = ""
    if component is None:
        hint = did_you_mean(one.component, spec.components)
        report((*keys, "component"), f"no component {one.component!r}{hint}")
    elif component.python is not None:
        path = COMPONENTS_PATH + one.component
        for name in one.inputs.keys() & one.with_.keys():
            report((*keys, "with", name), f"{name!r} is in inputs too: expected one of them")
    else:
        path = check_engine_stage(component.uses, one, keys, report, check_call)
    known = {stage.name for stage in spec.stages} | {REQUEST}
    sources = list(dict.fromkeys(r.source for _, r in references if r.source in known))
    affinity = component.affinity if component is not None else None
    stage = Stage(
        one.name,
        one.component,
        path,
        dict(one.inputs),
        dict(one.with_),
        one.stream,
        affinity or "",
    )
    return stage, sources


def _check_reference(
    spec: ServiceSpec, reference: ValueReference, keys: Keys, report: Report, itself: str = ""
) -> None:
    if reference.source == REQUEST:
        path = reference.path
        if path and (problem := request_field_problem(spec.request.schema_, path[0])):
            report(keys, problem)
        return
    stages: Mapping[str, StageSpec] = {stage.name: stage for stage in spec.stages}
    stage = stages.get(reference.source)
    if stage is None or reference.source == itself:
        hint = did_you_mean(reference.source, [n for n in (REQUEST, *stages) if n != itself])
        report(keys, f"no stage {reference.source!r}{hint}")
        return
    component = spec.components.get(stage.component)
    if component is None or component.python is not None or not reference.path:
        return
    fields = engine_fields(component.uses)
    if fields and reference.path[0] not in fields:
        hint = did_you_mean(reference.path[0], fields)
        report(keys, f"{component.uses} has no output {reference.path[0]!r}{hint}")


def _check_reply(spec: ServiceSpec, report: Report) -> None:
    if not spec.reply:
        report(("spec", "reply"), "a service with stages needs a reply: a name and a value")
    for name, text in spec.reply.items():
        keys = ("spec", "reply", name)
        reference = parse_reference(text)
        if reference is None:
            report(keys, f"{text!r} is not a reference: expected STAGE.FIELD, such as best.text")
        else:
            _check_reference(spec, reference, keys, report)


def _check_streams(spec: ServiceSpec, needs: Mapping[str, list[str]], report: Report) -> None:
    streams = [(i, s) for i, s in enumerate(spec.stages) if s.stream]
    for index, _ in streams[1:]:
        report(
            (*_STAGES, index, "stream"),
            f"stage {streams[0][1].name!r} streams already: expected one at most",
        )
    for index, stage in streams:
        keys = (*_STAGES, index, "stream")
        component = spec.components.get(stage.component)
        if component is not None and component.python is not None:
            report(keys, "a Python component does not stream: expected an engine")
        elif component is not None and not can_stream(component.uses):
            report(keys, f"{component.uses} does not stream: expected a stage of {GENERATE}")
        elif reader := next((n for n, of in needs.items() if stage.name in of), ""):
            report(keys, f"stage {reader!r} reads its answer: only a last stage streams")


def _check_use(
    spec: ServiceSpec, stages: Mapping[str, Stage], needs: Mapping[str, list[str]], report: Report
) -> None:
    replied = {r.source for t in spec.reply.values() if (r := parse_reference(t)) is not None}
    used = replied | {source for of in needs.values() for source in of}
    for index, stage in enumerate(spec.stages):
        if stage.name in stages and stage.name not in used:
            report((*_STAGES, index), f"nothing reads stage {stage.name!r}: name it in reply")
    called = {stage.component for stage in spec.stages}
    for name in spec.components:
        if name not in called:
            report(("spec", "components", name), f"no stage calls component {name!r}")

"""From a complete join to the call of an engine host, and from its answer to the stage's value."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.openai.request import check_request
from flowmesh_core.openai.topk_request import check_topk
from flowmesh_core.protocol.serving import (
    CallEnded,
    ComponentCall,
    PassedValue,
    RunStages,
    ServiceCall,
    StoredInput,
)
from flowmesh_core.stages.service_graph import LoadedStage
from flowmesh_core.stages.stage_calls import TOPK_PATH, engine_value, openai_body
from flowmesh_core.stages.values import ValueReference, fill_tree, part_of
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.serving.instance_link import ComponentEnded, HostCall, InstanceLink
from flowmesh_worker.serving.stage_plans import StagePlan
from flowmesh_worker.serving.stage_values import StageData

_answers = msgspec.json.Decoder(dict)


class _Request(Protocol):
    """What a call needs to know of its request; see ``StagedRequest``."""

    run: RunStages
    until_s: float
    due_s: float


class StageCall(NamedTuple):
    """A call, and the values that it names."""

    call: HostCall
    passed: Mapping[str, StageBytes]


def stage_call(
    request: _Request, stage: StagePlan, values: Mapping[str, StageData], now_s: float
) -> StageCall:
    """Returns the call of a stage.

    Args:
        request: that the stage is for.
        stage: how the hub runs it.
        values: that it needs.
        now_s: the time, by the loop's clock.

    Raises:
        FlowMeshError: a value that the stage reads is missing, or the engine refuses it.
    """
    loaded = stage.loaded
    printed = {source: values[source].decoded() for source in loaded.prints}
    params = fill_tree(loaded.params, printed)
    call_id = f"{request.run.request_id}.{request.run.route.version}.{stage.name}"
    if loaded.stage.is_python:
        return _component_call(request, stage, values, now_s, call_id, params)
    streams = loaded.stage.stream and request.run.stream
    if loaded.stage.path == TOPK_PATH:
        body = _topk_body(loaded, values, params)
    else:
        body = _openai_body(loaded, params, streams=streams)
    call = ServiceCall(
        call_id=call_id,
        replica_id="",
        path=loaded.stage.path,
        model=loaded.stage.component,
        body=body,
        stream=streams,
        budget_ms=_left_ms(request.until_s, now_s),
        tenant=request.run.tenant,
        seed=request.run.seed,
    )
    return StageCall(call, {})


def _component_call(
    request: _Request,
    stage: StagePlan,
    values: Mapping[str, StageData],
    now_s: float,
    call_id: str,
    inputs: dict[str, Any],
) -> StageCall:
    stored: dict[str, StoredInput] = {}
    passed: dict[str, StageBytes] = {}
    named: dict[str, PassedValue] = {}
    for name, reference in stage.loaded.inputs.items():
        data = values[reference.source]
        if data.key and data.instance is stage.instance:
            stored[name] = StoredInput(data.key, reference.path)
        elif data.packed:
            passed[name], named[name] = data.packed, PassedValue(path=reference.path)
        else:
            inputs[name] = _input(reference, data)
    call = ComponentCall(
        call_id=call_id,
        component=stage.loaded.stage.component,
        body=msgspec.json.encode(inputs),
        stored=stored,
        store_as=call_id if stage.is_stored else "",
        wants_body=stage.wants_body,
        budget_ms=_left_ms(request.until_s, now_s),
        slo_ms=_left_ms(request.due_s, now_s) if request.due_s else 0,
        tenant=request.run.tenant,
        passed=named,
        wants_value=stage.wants_value,
        timing=stage.timing,
        timed=request.run.timed,
    )
    return StageCall(call, passed)


def _left_ms(until_s: float, now_s: float) -> int:
    return max(1, int((until_s - now_s) * 1000))


def stage_value(call: HostCall, ended: CallEnded, instance: InstanceLink | None) -> StageData:
    """Returns the value of a stage from its call's end; empty where it was streamed."""
    if isinstance(call, ComponentCall):
        packed = ended.received if isinstance(ended, ComponentEnded) else b""
        return StageData(ended.body, call.store_as, instance, packed)
    if call.stream:
        return StageData(b"")
    if call.path == TOPK_PATH:
        return StageData(ended.body)
    answer: Mapping[str, Any] = decode(_answers, ended.body)
    return StageData(msgspec.json.encode(engine_value(call.path, answer)))


def _openai_body(loaded: LoadedStage, params: dict[str, Any], *, streams: bool) -> bytes:
    path = loaded.stage.path
    body = openai_body(path, params, loaded.stage.component)
    checked = check_request(path, {**body, "stream": True} if streams else body)
    return msgspec.json.encode(checked.body)


def _topk_body(
    loaded: LoadedStage, values: Mapping[str, StageData], params: dict[str, Any]
) -> bytes:
    check_topk(params)
    rows = {n: _input(r, values[r.source]) for n, r in loaded.inputs.items()}
    return msgspec.json.encode({**params, **rows})


def _input(reference: ValueReference, data: StageData) -> Any:
    if not reference.path:
        return msgspec.Raw(data.body)
    if len(reference.path) == 1 and (field := data.field(reference.path[0])) is not None:
        return field
    return part_of(data.decoded(), reference.path, str(reference))

"""From a complete join to the call of an engine host, and from its answer to the stage's value."""

import asyncio
from collections.abc import Callable, Mapping
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
from flowmesh_core.stages.joins import MatchedSet
from flowmesh_core.stages.service_graph import LoadedGraph, LoadedStage
from flowmesh_core.stages.stage_calls import TOPK_PATH, engine_value, openai_body
from flowmesh_core.stages.values import ValueReference, fill_tree, part_of
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.serving.instance_link import ComponentEnded, HostCall, InstanceLink
from flowmesh_worker.serving.stage_values import StageData

_answers = msgspec.json.Decoder(dict)


class _Request(Protocol):
    """What a call needs to know of its request; see ``StagedRequest``."""

    run: RunStages
    graph: LoadedGraph
    until_s: float
    due_s: float


class StageCall(NamedTuple):
    """A call, and the values that it names."""

    call: HostCall
    passed: Mapping[str, StageBytes]


class StageCalls:
    """Makes the calls of one hub."""

    def __init__(self, instance_of: Callable[[str], InstanceLink | None]) -> None:
        """Looks up the engine instance of a replica with ``instance_of``."""
        self._instance_of = instance_of

    def call(self, request: _Request, done: MatchedSet[StageData], replica_id: str) -> StageCall:
        """Returns the call of a stage.

        Raises:
            FlowMeshError: a value that the stage reads is missing, or the engine refuses it.
        """
        loaded = request.graph.stages[done.stage]
        printed = {source: done.values[source].decoded() for source in loaded.prints}
        params = fill_tree(loaded.params, printed)
        call_id = f"{request.run.request_id}.{request.run.route.version}.{done.stage}"
        if loaded.stage.is_python:
            return self._component_call(request, done, replica_id, call_id, params)
        streams = loaded.stage.stream and request.run.stream
        if loaded.stage.path == TOPK_PATH:
            body = _topk_body(loaded, done, params)
        else:
            body = _openai_body(loaded, params, streams=streams)
        return StageCall(self._engine_call(request, loaded, call_id, body, streams=streams), {})

    def _engine_call(
        self, request: _Request, loaded: LoadedStage, call_id: str, body: bytes, *, streams: bool
    ) -> ServiceCall:
        run = request.run
        return ServiceCall(
            call_id=call_id,
            replica_id="",
            path=loaded.stage.path,
            model=loaded.stage.component,
            body=body,
            stream=streams,
            budget_ms=self._left_ms(request.until_s),
            tenant=run.tenant,
            seed=run.seed,
        )

    def _component_call(
        self,
        request: _Request,
        done: MatchedSet[StageData],
        replica_id: str,
        call_id: str,
        params: dict[str, Any],
    ) -> StageCall:
        loaded = request.graph.stages[done.stage]
        instance = self._instance_of(replica_id)
        inputs = dict(params)
        stored: dict[str, StoredInput] = {}
        passed: dict[str, StageBytes] = {}
        named: dict[str, PassedValue] = {}
        for name, reference in loaded.inputs.items():
            data = done.values[reference.source]
            if data.key and data.instance is instance:
                stored[name] = StoredInput(data.key, reference.path)
            elif data.packed:
                passed[name], named[name] = data.packed, PassedValue(path=reference.path)
            else:
                inputs[name] = _input(reference, data)
        is_stored, wants_body, wants_value = self._uses(request, done.stage, instance)
        call = ComponentCall(
            call_id=call_id,
            component=loaded.stage.component,
            body=msgspec.json.encode(inputs),
            stored=stored,
            store_as=call_id if is_stored else "",
            wants_body=wants_body,
            budget_ms=self._left_ms(request.until_s),
            slo_ms=self._left_ms(request.due_s) if request.due_s else 0,
            tenant=request.run.tenant,
            passed=named,
            wants_value=wants_value,
        )
        return StageCall(call, passed)

    def _uses(
        self, request: _Request, stage: str, instance: InstanceLink | None
    ) -> tuple[bool, bool, bool]:
        """Returns what a stage's value is for: components of its host, JSON, those of others."""
        is_stored = wants_body = wants_value = False
        for consumer in request.graph.consumers[stage]:
            place = request.run.route.place(consumer)
            loaded = request.graph.stages.get(consumer)
            if place is None or loaded is None or not _reads_whole(loaded, stage):
                wants_body = True
            elif self._instance_of(place.replica_id) is instance:
                is_stored = True
            else:
                wants_value = True
        return is_stored, wants_body, wants_value

    @staticmethod
    def _left_ms(until_s: float) -> int:
        return max(1, int((until_s - asyncio.get_running_loop().time()) * 1000))


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


def _topk_body(loaded: LoadedStage, done: MatchedSet[StageData], params: dict[str, Any]) -> bytes:
    check_topk(params)
    rows = {n: _input(r, done.values[r.source]) for n, r in loaded.inputs.items()}
    return msgspec.json.encode({**params, **rows})


def _reads_whole(loaded: LoadedStage, source: str) -> bool:
    return loaded.stage.is_python and source not in loaded.prints


def _input(reference: ValueReference, data: StageData) -> Any:
    if not reference.path:
        return msgspec.Raw(data.body)
    return part_of(data.decoded(), reference.path, str(reference))

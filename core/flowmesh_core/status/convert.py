"""Converts the core's structures to the API's structures of the same JSON.

Messages, ledger lines and snapshots of the core may change; the responses of version 1 of the API
may not. Values stay as they are: an integer in a field of floats stays an integer.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec

from flowmesh_api.v1 import audit, engines, fabric, trace, why
from flowmesh_core.accounting.ledger_lines import AttemptLine, HitLine
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.fleet.snapshot import Candidate
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.protocol.messages import Component, EngineInstanceState, WorkerShape
from flowmesh_core.protocol.results import Provenance

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def worker_shape(shape: WorkerShape) -> fabric.WorkerShape:
    """Returns a worker's properties."""
    variants = tuple([_copied(fabric.EngineVariant, variant) for variant in shape.variants])
    engines = {name: tuple(version) for name, version in shape.engines.items()}
    copied = _copied(fabric.WorkerShape, shape)
    return msgspec.structs.replace(copied, variants=variants, engines=engines)


def engine_instance(state: EngineInstanceState) -> fabric.EngineInstanceState:
    """Returns the state of an engine instance."""
    return _copied(fabric.EngineInstanceState, state)


def component(loaded: Component) -> fabric.Component:
    """Returns a component on a worker."""
    return _copied(fabric.Component, loaded)


def attempt_line(line: AttemptLine) -> why.AttemptLine:
    """Returns the end of an attempt."""
    placed = tuple([_copied(why.ScoredWorker, worker) for worker in line.placed])
    ran = None if line.ran is None else _copied(why.AttemptDetails, line.ran)
    return msgspec.structs.replace(_copied(why.AttemptLine, line), placed=placed, ran=ran)


def hit_line(line: HitLine) -> why.HitLine:
    """Returns a result that a run reused."""
    return _copied(why.HitLine, line)


def candidate(scored: Candidate) -> why.Candidate:
    """Returns a worker that could run an action."""
    return why.Candidate(
        scored.worker, _copied(why.UtilityTerms, scored.terms), scored.has_instance
    )


def provenance_of(result: Provenance) -> audit.Provenance:
    """Returns where and how a result was produced."""
    return _copied(audit.Provenance, msgspec.structs.replace(result, parts=()))


def weights(coefficients: UtilityWeights) -> trace.Weights:
    """Returns the coefficients of the utility."""
    return _copied(trace.Weights, coefficients)


def offered_engine(contract: EngineContract, workers: list[str]) -> engines.OfferedEngine:
    """Returns an engine's contract with the workers that offer it."""
    fields = {**msgspec.to_builtins(contract), "offered_by": workers}
    return msgspec.convert(fields, engines.OfferedEngine)


def _copied(kind: type[_Struct], value: msgspec.Struct) -> _Struct:
    """Returns a structure of another class with the same field values.

    A field with its default gets the other class's default: both are left out of the JSON, where a
    field with an equal value is not (``omit_defaults`` compares by identity).
    """
    defaults = _defaults(type(value))
    given = {name: getattr(value, name) for name in value.__struct_fields__}
    return kind(**{name: v for name, v in given.items() if v is not defaults[name]})


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}

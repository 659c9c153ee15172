"""The inputs of a step: references resolved to sources and checked against the contract's ports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.graph.compile_context import CompileContext, Keys, StepEntry
from flowmesh_core.graph.matrix import SelectionError, select
from flowmesh_core.graph.outputs import find_output
from flowmesh_core.graph.plan import Edge, Source, StepSource
from flowmesh_core.graph.references import (
    INPUTS,
    ReferenceFormError,
    StepReference,
    parse_reference,
)
from flowmesh_core.spec.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class ResolvedInput:
    """The sources of a reference, of one kind."""

    sources: tuple[Source, ...]
    kind: str
    concatenate: bool = False


def resolve(
    scope: CompileContext, text: str, own: Mapping[str, Any], keys: Keys
) -> ResolvedInput | None:
    """Returns the sources of a reference, or None with a problem reported.

    Args:
        scope: the compilation.
        text: the reference.
        own: the referring instance's matrix values.
        keys: where the reference is.
    """
    try:
        reference = parse_reference(text)
        if reference.step == INPUTS:
            return _input(scope, reference, keys)
        return _output(scope, reference, own, keys)
    except (ReferenceFormError, SelectionError) as e:
        scope.report(keys, str(e))
        return None


def _input(scope: CompileContext, reference: StepReference, keys: Keys) -> ResolvedInput | None:
    if reference.port not in scope.inputs:
        scope.report(
            keys, f"no input {reference.port!r}{did_you_mean(reference.port, scope.inputs)}"
        )
        return None
    entry = scope.inputs[reference.port]
    return ResolvedInput((entry.source,), entry.kind) if entry else None


def _output(
    scope: CompileContext, reference: StepReference, own: Mapping[str, Any], keys: Keys
) -> ResolvedInput | None:
    entry = scope.steps.get(reference.step)
    if entry is None:
        hint = did_you_mean(reference.step, scope.steps)
        if reference.step in scope.inputs:
            hint = f"; did you mean 'inputs.{reference.step}'?"
        scope.report(keys, f"no step {reference.step!r}{hint}")
        return None
    paths, several = _instances(entry, reference, own)
    port = find_output(scope, entry, paths, reference.port, keys)
    if port is None:
        return None
    if several and port.kind is not PortKind.DATASET:
        scope.report(
            keys,
            f"[*] concatenates data sets, not {_article(port.kind)}; select one instance",
        )
        return None
    return ResolvedInput(tuple(StepSource(p, port.name) for p in paths), port.kind.value, several)


def _instances(
    entry: StepEntry, reference: StepReference, own: Mapping[str, Any]
) -> tuple[list[str], bool]:
    name, matrix = entry.spec.name, entry.spec.matrix
    if reference.selection is not None:
        return select(name, entry.by_value, reference.selection, own)
    if matrix:
        example = entry.instances[0].path if entry.instances else f"{name}[..]"
        raise SelectionError(
            f"step {name!r} has a matrix; write {name}[*].{reference.port} for all its instances,"
            f" or one of them: {example}.{reference.port}"
        )
    return [name], False


def read_edges(scope: CompileContext, entry: StepEntry, own: Mapping[str, Any]) -> tuple[Edge, ...]:
    """Returns the inputs of one instance; problems are reported."""
    contract = entry.contract
    edges: list[Edge] = []
    for name, text in entry.spec.inputs.items():
        keys = (*entry.keys, "inputs", name)
        feed = resolve(scope, text, own, keys)
        if contract is None:
            continue
        port = contract.input_port(name)
        if port is None:
            ports = [p.name for p in contract.inputs]
            hint = did_you_mean(name, ports) if ports else "; it takes none"
            scope.report(keys, f"{contract.name} has no input {name!r}{hint}")
            continue
        if port.name == "*" and not (name.isidentifier() and name.isascii()):
            scope.report(keys, f"{name!r} must be an identifier: letters, digits and _")
        if feed is None:
            continue
        if feed.kind != port.kind.value:
            scope.report(keys, f"{text} is {_article(feed.kind)}, expected {_article(port.kind)}")
            continue
        # Required since the author named it, even where the engine could do without.
        edges.append(Edge(name, feed.kind, feed.sources, concatenate=feed.concatenate))
    if contract is not None:
        for port in contract.inputs:
            _check_connected(scope, entry, contract, port)
    return tuple(edges)


def _check_connected(
    scope: CompileContext, entry: StepEntry, contract: EngineContract, port: Port
) -> None:
    if not port.required:
        return
    if port.name == "*":
        if not entry.spec.inputs:
            scope.report(
                (*entry.keys, "inputs"),
                f"{contract.name} needs at least one input, {_article(port.kind)}",
            )
    elif port.name not in entry.spec.inputs:
        scope.report(
            (*entry.keys, "inputs"),
            f"{contract.name} needs the input {port.name!r}, {_article(port.kind)}",
        )


def _article(kind: str) -> str:
    words = {
        "dataset": "a data set",
        "model": "a model",
        "adapter": "an adapter",
        "metrics": "metrics",
        "blob": "a blob",
    }
    return words[str(kind)]

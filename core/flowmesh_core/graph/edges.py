"""The inputs of a step: references resolved to sources and checked against the contract's ports."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.catalog.foreign_names import foreign_input_hint
from flowmesh_core.graph.compile_context import CompileContext, Keys, StepEntry
from flowmesh_core.graph.input_forms import WHEN_SKIPPED, InputForm, read_form
from flowmesh_core.graph.matrix import SelectionError, select
from flowmesh_core.graph.outputs import find_output
from flowmesh_core.graph.plan import ABSENT, ALL, EMPTY, FIRST, Edge, Source, StepSource
from flowmesh_core.graph.references import (
    INPUTS,
    ReferenceFormError,
    StepReference,
    parse_reference,
)
from flowmesh_core.spec.suggestions import did_you_mean, nearest

_JOINED = (PortKind.DATASET.value,)


@dataclass(frozen=True, slots=True)
class ResolvedInput:
    """The sources of a reference, of one kind."""

    sources: tuple[Source, ...]
    kind: str
    concatenate: bool = False


def resolve(
    scope: CompileContext,
    text: str,
    own: Mapping[str, Any],
    keys: Keys,
    joined: Collection[str] = _JOINED,
) -> ResolvedInput | None:
    """Returns the sources of a reference, or None with a problem reported.

    Args:
        scope: the compilation.
        text: the reference.
        own: the referring instance's matrix values.
        keys: where the reference is.
        joined: the kinds of which several instances (``[*]``) can be read as one.
    """
    try:
        reference = parse_reference(text)
        if reference.step == INPUTS:
            return _input(scope, reference, keys)
        return _output(scope, reference, own, keys, joined)
    except (ReferenceFormError, SelectionError) as e:
        name = text.strip().removeprefix(f"{INPUTS}.")
        if not (scope.notes.may_mean_step(text) or scope.notes.lacks_input(name)):
            scope.report(keys, str(e))
        return None


def _input(scope: CompileContext, reference: StepReference, keys: Keys) -> ResolvedInput | None:
    if reference.port not in scope.inputs and scope.notes.lacks_input(reference.port):
        return None
    if reference.port not in scope.inputs:
        scope.report(
            keys, f"no input {reference.port!r}{did_you_mean(reference.port, scope.inputs)}"
        )
        return None
    entry = scope.inputs[reference.port]
    return ResolvedInput((entry.source,), entry.kind) if entry else None


def _output(
    scope: CompileContext,
    reference: StepReference,
    own: Mapping[str, Any],
    keys: Keys,
    joined: Collection[str],
) -> ResolvedInput | None:
    entry = scope.steps.get(reference.step)
    if entry is None and scope.notes.may_mean_step(reference.step):
        return None
    if entry is None:
        hint = scope.step_hint(reference.step)
        if reference.step in scope.inputs:
            hint = f"; did you mean 'inputs.{reference.step}'?"
        scope.report(keys, f"no step {reference.step!r}{hint}")
        return None
    if reference.selection and (entry.is_partial or not scope.has_own_matrix(keys)):
        return None
    paths, several = _instances(entry, reference, own)
    port = find_output(scope, entry, paths, reference.port, keys)
    if port is None:
        return None
    if several and port.kind.value not in joined:
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
    for name, value in entry.spec.inputs.items():
        keys = (*entry.keys, "inputs", name)
        port = None if contract is None else _port(scope, contract, name, keys)
        form = read_form(scope, value, keys)
        if form is None:
            continue
        feeds = _feeds(scope, form, own, port)
        if contract is None or port is None or feeds is None:
            continue
        if _check_join(scope, form, port, keys) and _check_skip(scope, contract, port, name, form):
            edges.append(_edge(name, port, form, feeds))
    if contract is not None:
        for port in contract.inputs:
            _check_connected(scope, entry, contract, port)
    return tuple(edges)


def _port(scope: CompileContext, contract: EngineContract, name: str, keys: Keys) -> Port | None:
    port = contract.input_port(name)
    if port is None:
        ports = [p.name for p in contract.inputs]
        hint = did_you_mean(name, ports) if ports else "; it takes none"
        if foreign := foreign_input_hint(contract.name, name):
            hint = f"; {foreign}"
        scope.report(keys, f"{contract.name} has no input {name!r}{hint}")
    elif port.name == "*" and not (name.isidentifier() and name.isascii()):
        scope.report(keys, f"{name!r} must be an identifier: letters, digits and _")
    return port


def _feeds(
    scope: CompileContext, form: InputForm, own: Mapping[str, Any], port: Port | None
) -> list[ResolvedInput] | None:
    """The sources of each reference; None where one of them has a problem, which is reported."""
    joined = (*_JOINED, port.kind.value) if port is not None and port.collects else _JOINED
    found: list[ResolvedInput] = []
    for text, keys in form.references:
        feed = resolve(scope, text, own, keys, joined)
        if feed is None or port is None:
            continue
        if feed.kind != port.kind.value:
            scope.report(keys, f"{text} is {_article(feed.kind)}, expected {_article(port.kind)}")
        elif form.pick == FIRST and feed.concatenate:
            scope.report(keys, "firstOf takes single sources; name one instance, or write a list")
        else:
            found.append(feed)
    return found if len(found) == len(form.references) else None


def _check_join(scope: CompileContext, form: InputForm, port: Port, keys: Keys) -> bool:
    if not form.listed or port.kind is PortKind.DATASET or port.collects:
        return True
    scope.report(
        keys, f"a list joins data sets, not {_plural(port.kind)}; write {{firstOf: [...]}}"
    )
    return False


def _check_skip(
    scope: CompileContext, contract: EngineContract, port: Port, name: str, form: InputForm
) -> bool:
    """Whether the engine can do what is to happen when the sources are skipped."""
    keys = form.place
    if form.when_skipped == EMPTY and port.kind is not PortKind.DATASET:
        remedy = "firstOf, or let it skip" if port.required and port.name != "*" else "absent"
        scope.report(keys, f"only a data set can be empty, not {_article(port.kind)}; use {remedy}")
        return False
    if form.when_skipped != ABSENT:
        return True
    if port.required and port.name != "*":
        scope.report(keys, f"{contract.name} needs {name!r}; use firstOf, or let it skip")
        return False
    if any(p.format == "sql" for p in contract.params):
        scope.report(
            keys, f"the query of {contract.name} reads {name!r}; write {WHEN_SKIPPED}: {EMPTY}"
        )
        return False
    return True


def _edge(name: str, port: Port, form: InputForm, feeds: Sequence[ResolvedInput]) -> Edge:
    sources = tuple(s for feed in feeds for s in feed.sources)
    several = any(f.concatenate for f in feeds) or (form.listed and len(sources) > 1)
    return Edge(
        name,
        port.kind.value,
        sources,
        concatenate=several or port.collects,
        pick=form.pick if len(sources) > 1 else ALL,
        when_skipped=form.when_skipped,
        empty_columns=dict(form.empty_columns or {}),
    )


def _check_connected(
    scope: CompileContext, entry: StepEntry, contract: EngineContract, port: Port
) -> None:
    if not port.required or _is_misspelt(contract, port, entry.spec.inputs):
        return
    if port.name == "*":
        if not any(map(_is_certain, entry.spec.inputs.values())):
            may_be = ", which is not absent" if entry.spec.inputs else ""
            scope.report(
                (*entry.keys, "inputs"),
                f"{contract.name} needs at least one input, {_article(port.kind)}{may_be}",
            )
    elif port.name not in entry.spec.inputs:
        scope.report(
            (*entry.keys, "inputs"),
            f"{contract.name} needs the input {port.name!r}, {_article(port.kind)}",
        )


def _is_misspelt(contract: EngineContract, port: Port, given: Collection[str]) -> bool:
    """Whether an input with an unknown name, which is reported, is meant to be this one."""
    names = [p.name for p in contract.inputs]
    unknown = (n for n in given if contract.input_port(n) is None)
    return port.name not in given and any(nearest(n, names) == port.name for n in unknown)


def _is_certain(value: Any) -> bool:
    """Whether an input is there whenever its step runs."""
    return not (isinstance(value, Mapping) and value.get(WHEN_SKIPPED) == ABSENT)


def _plural(kind: str) -> str:
    return "metrics" if kind == "metrics" else f"{kind}s"


def _article(kind: str) -> str:
    words = {
        "dataset": "a data set",
        "model": "a model",
        "adapter": "an adapter",
        "metrics": "metrics",
        "blob": "a blob",
    }
    return words[str(kind)]

"""Inputs of services that are outputs of a workflow's runs.

The control plane looks up the newest run and gives the reference to its output, as it gives those
to uploads; the compiler checks the name.
"""

from typing import NamedTuple

from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.graph.compile_context import CompileContext, InputEntry, Keys
from flowmesh_core.graph.plan import ArtifactSource
from flowmesh_core.sharing import read_reference
from flowmesh_core.spec.inputs import ONE_SOURCE_RULE, InputSpec
from flowmesh_core.spec.service_inputs import ServiceInputSpec

_PARTS = 3
_OTHERS = tuple(n for n in InputSpec.model_fields if n not in ("secrets", "output"))


class PublishedOutput(NamedTuple):
    """An output, by the workflow whose runs publish it."""

    workflow: str
    output: str


def parse_output(text: str, namespace: str) -> PublishedOutput | str:
    """Returns what an input names, or why it names nothing.

    Args:
        text: as the user wrote it.
        namespace: of the service.
    """
    parts = text.split("/")
    if len(parts) == _PARTS and parts[0] != namespace:
        return (
            f"{text!r} is of namespace {parts[0]}: expected one of {namespace}, the service's own;"
            " to use another's, take its reference from `fmesh outputs` and write dataset: cas:..."
        )
    if len(parts) not in (_PARTS - 1, _PARTS) or not all(parts):
        return f"{text!r} is not an output: expected WORKFLOW/OUTPUT"
    return PublishedOutput(*parts[-2:])


def read_outputs(scope: CompileContext, inputs: dict[str, ServiceInputSpec]) -> None:
    """Reads every input that is an output into the scope; those with problems as None."""
    for name, spec in inputs.items():
        if spec.output is None:
            continue
        scope.inputs[name] = None
        keys: Keys = ("spec", "inputs", name)
        others = [n for n in _OTHERS if getattr(spec, n)]
        if others:
            scope.report(keys, f"{ONE_SOURCE_RULE}; got output and {' and '.join(others)}")
            continue
        found = parse_output(spec.output, scope.workflow.metadata.namespace)
        if isinstance(found, str):
            scope.report((*keys, "output"), found)
        else:
            scope.inputs[name] = _entry(scope, name, found, (*keys, "output"))


def refuse_config_maps(scope: CompileContext, inputs: dict[str, ServiceInputSpec]) -> None:
    """Reports every input that is in a ConfigMap: these are read for runs of workflows alone."""
    for name, spec in inputs.items():
        if spec.config_map is not None:
            scope.inputs[name] = None
            scope.report(
                ("spec", "inputs", name, "configMap"),
                "services read no ConfigMaps: write the rows here (rows: [...]), or publish them"
                " with a workflow and write output: WORKFLOW/OUTPUT",
            )


def _entry(
    scope: CompileContext, name: str, found: PublishedOutput, keys: Keys
) -> InputEntry | None:
    reference = scope.uploads.get(name)
    if reference is None:
        if not scope.validate_only:
            scope.report(
                keys,
                f"no run of workflow {found.workflow!r} that succeeded has published"
                f" {found.output!r}: run it first, or correct the name",
            )
        return None
    try:
        kind = read_reference(reference).kind
    except InvalidReferenceError as e:
        scope.report(keys, f"{e.message}; {e.remedy}")
        return None
    return InputEntry(kind, ArtifactSource(kind, reference))

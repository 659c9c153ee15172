"""Builders of workflows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.plan import Plan
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow

Compile = Callable[..., Plan]
Problems = Callable[..., dict[str, str]]


def build(steps: Sequence[Mapping[str, Any]], **spec: Any) -> FlowMeshWorkflow:
    """A workflow of these steps; names default to a, b, c ... and engines to test.noop."""
    named = [{"name": chr(97 + i), "uses": "test.noop", **step} for i, step in enumerate(steps)]
    found = parse_object(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "w", "namespace": "team-a"},
            "spec": {"steps": named, **spec},
        }
    )
    assert isinstance(found, FlowMeshWorkflow)
    return found


def _compile(
    *steps: Mapping[str, Any],
    limits: Limits | None = None,
    uploads: Mapping[str, str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    validate_only: bool = True,
    **spec: Any,
) -> Plan:
    return compile_workflow(
        build(steps, **spec),
        builtin_catalog(),
        limits or Limits(),
        uploads=uploads,
        columns=columns,
        validate_only=validate_only,
    )


@pytest.fixture
def compiled() -> Compile:
    """Compiles steps and fields of the spec."""
    return _compile


@pytest.fixture
def problems() -> Problems:
    """Compiles and returns the problems: path to message."""

    def find(*steps: Mapping[str, Any], **more: Any) -> dict[str, str]:
        try:
            _compile(*steps, **more)
        except SpecError as e:
            return {p.path: p.message for p in e.problems}
        return {}

    return find

"""Generated mistakes in a workflow with parameters: no traceback, and a place for every problem."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.parameter_places import PLACES, WRITTEN, with_parameters

from flowmesh_api.v1.problems import Problem
from flowmesh_core.graph.validate import check_loaded
from flowmesh_core.spec.load import load_text

APART = [p for p in PLACES if not any(o != p and o == p[: len(o)] for o in PLACES)]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 100)
    | st.sampled_from([0.5, "", "x", "a b", "${params.p0}", "${params.no}", "${params.", "ask"])
    | st.sampled_from(["${params.p0.x}", "inputs.q", "ask[n=1,t=x].rows", "$${params.p1}", "5m"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "type", "default", "rows", "x"]), inner)
    ),
    max_leaves=4,
)


def _paths(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [keys]
    for key, below in inner if isinstance(value, dict | list) else ():
        found += _paths(below, (*keys, key)) if isinstance(below, dict | list) else [(*keys, key)]
    return found


def _document() -> dict[str, Any]:
    head = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshWorkflow"}
    return {**head, "metadata": {"name": "w"}, "spec": with_parameters(APART)}


PATHS = [p for p in _paths(_document()) if p and p != ("kind",)]


def _mistaken(path: tuple[Any, ...], value: Any, *, is_removed: bool) -> dict[str, Any]:
    document = json.loads(json.dumps(_document()))
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    if is_removed:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return dict(document)


def _problems(document: dict[str, Any]) -> list[Problem]:
    (loaded,), problems = load_text(json.dumps(document))
    return [*problems, *check_loaded(loaded, builtin_catalog())]


def test_the_workflow_without_mistakes_has_no_problems() -> None:
    assert _problems(_document()) == []
    assert len(PATHS) > len(WRITTEN)


@settings(max_examples=400)
@given(st.sampled_from(PATHS), VALUES, st.booleans())
def test_every_mistake_is_reported_with_a_place_and_a_line(
    path: tuple[Any, ...], value: Any, is_removed: bool
) -> None:
    found = _problems(_mistaken(path, value, is_removed=is_removed))
    assert all(p.path and p.line and p.message for p in found)
    assert len({(p.path, p.message) for p in found}) == len(found)
    for problem in found:
        assert "unnamed-step-" not in problem.message, "a stand-in is never shown"


@settings(max_examples=200)
@given(st.sampled_from(PATHS), VALUES)
def test_a_mistake_does_not_hide_one_of_another_step(path: tuple[Any, ...], value: Any) -> None:
    document = _mistaken(path, value, is_removed=False)
    spec = document.get("spec")
    steps = spec.get("steps") if isinstance(spec, dict) else None
    if not isinstance(steps, list) or path == ("spec", "steps"):
        return
    steps.append({"name": "other", "uses": "test.noop", "with": {"valeu": 1}})
    wanted = f"spec.steps[{len(steps) - 1}].with.valeu"
    assert wanted in {p.path for p in _problems(document)}

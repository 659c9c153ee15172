"""Output ports that are there only with some value of a parameter."""

from collections.abc import Mapping
from typing import Any

from tests.flowmesh_core.graph.conftest import build

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract, Param, ParamType, Port, PortKind
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow

TUNE = EngineContract(
    "test.tune",
    1,
    1,
    (),
    (
        Port("adapter", PortKind.METRICS, only_with=("peft", True)),
        Port("model", PortKind.METRICS, only_with=("peft", False)),
        Port("metrics", PortKind.METRICS),
    ),
    (
        Param("peft", ParamType.BOOLEAN, default=True),
        Param("tools", ParamType.LIST, default=[]),
    ),
    external_with=(("tools", "http"),),
)
CATALOG = Catalog([*contracts(), TUNE])


def problems(*steps: Mapping[str, Any], **spec: Any) -> dict[str, str]:
    try:
        compile_workflow(build(steps, **spec), CATALOG, validate_only=True)
    except SpecError as e:
        return {p.path: p.message for p in e.problems}
    return {}


def tune(**params: Any) -> dict[str, Any]:
    return {"name": "sft", "uses": "test.tune", "with": params}


def test_a_reference_to_an_absent_port_is_refused_with_the_ports_and_the_parameter_to_set() -> None:
    found = problems(tune(peft=False), {"inputs": {"got": "sft.adapter"}})
    assert found == {
        "spec.steps[1].inputs.got": "'sft' has no output 'adapter' with peft: false;"
        " it has 'model', 'metrics'; set peft: true"
    }


def test_ports_that_exist_by_default_or_by_a_parameter_are_accepted() -> None:
    assert problems(tune(), {"inputs": {"got": "sft.adapter"}}) == {}
    assert problems(tune(peft=False), {"inputs": {"got": "sft.model"}}) == {}
    assert (
        problems(tune(peft="${params.p}"), {"inputs": {"got": "sft.model"}}, params={"p": False})
        == {}
    )


def test_workflow_outputs_and_conditions_are_checked_against_the_ports_too() -> None:
    absent = "'sft' has no output 'model' with peft: true; it has 'adapter', 'metrics';"
    found = problems(
        tune(),
        {"when": "steps['sft'].model.loss < 1.0"},
        outputs={"best": "sft.model"},
    )
    assert found == {
        "spec.steps[1].when": f"{absent} set peft: false",
        "spec.outputs.best": f"{absent} set peft: false",
    }


def test_each_instance_of_a_matrix_has_the_ports_of_its_own_value() -> None:
    grid = {**tune(peft="${matrix.p}"), "matrix": {"p": [True, False]}}
    fine = {"inputs": {"got": "sft[p=false].model"}}
    assert problems(grid, fine) == {}
    found = problems(grid, {"inputs": {"got": "sft[p=true].model"}})
    assert list(found) == ["spec.steps[1].inputs.got"]
    assert found["spec.steps[1].inputs.got"].startswith("'sft[p=true]' has no output 'model'")


def test_a_wrong_value_of_the_parameter_is_the_only_problem() -> None:
    found = problems(tune(peft="perhaps"), {"inputs": {"got": "sft.model"}})
    assert list(found) == ["spec.steps[0].with.peft"]


def test_a_step_that_a_parameter_makes_external_is_reused_within_its_run_only() -> None:
    steps = [tune(), {**tune(tools=["http"]), "name": "ask"}]
    plan = compile_workflow(build(steps), CATALOG, validate_only=True)
    assert [s.cache.reuse for s in plan.steps] == ["always", "run"]

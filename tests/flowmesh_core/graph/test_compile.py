"""Workflows that compile, and to what."""

import msgspec
import pytest
from tests.call_counts import calls_of
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS, ROWS, SQL

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.plan import (
    ArtifactSource,
    Cache,
    Plan,
    Resources,
    Retry,
    StepSource,
    UtilityWeights,
)


def _step(plan: Plan, path: str):  # type: ignore[no-untyped-def]
    return next(s for s in plan.steps if s.path == path)


def test_steps_come_after_what_they_need_and_otherwise_as_declared(compiled) -> None:
    plan = compiled(
        {"inputs": {"x": "c.metrics", "y": "d.metrics"}},
        {},
        {"inputs": {"x": "b.metrics"}},
        {},
    )
    assert [s.path for s in plan.steps] == ["b", "c", "d", "a"]
    assert _step(plan, "a").parents() == ("c", "d")


def test_parameters_are_typed_and_filled_with_defaults(compiled) -> None:
    given = {"prompt": "{{ question }}", "temperature": 1, "samples": 4.0, "dtype": "float32"}
    step = _step(compiled({**GENERATE, "with": given}, inputs=INPUTS), "a")
    assert step.params["temperature"] == 1.0
    assert isinstance(step.params["temperature"], float)
    assert step.params["samples"] == 4
    assert isinstance(step.params["samples"], int)
    assert step.params["maxTokens"] == 256
    assert "dtype" not in step.params
    assert step.fields == {
        "dtype": "float32",
        "batchInvariant": True,
        "implementation": "vllm",
        "tensorParallel": 1,
    }


def test_an_explicit_default_compiles_to_the_same_step(compiled) -> None:
    explicit = {**GENERATE["with"], "temperature": 1.0, "batchInvariant": True, "stop": []}
    assert compiled(GENERATE, inputs=INPUTS) == compiled(
        {**GENERATE, "with": explicit}, inputs=INPUTS
    )


def test_every_field_of_a_step_reaches_the_plan(compiled) -> None:
    step = _step(
        compiled(
            {
                **GENERATE,
                "resources": {
                    "memory": "4Gi",
                    "gpuProduct": ["H200"],
                    "tensorParallel": 2,
                    "labels": {"zone": "a"},
                    "antiLabels": {"spot": "true"},
                },
                "retry": {"attempts": 5, "backoff": "500ms"},
                "cache": {
                    "reuse": "run",
                    "salt": "s",
                    "maxAge": "30d",
                    "ignoredInputs": ["model"],
                },
                "timeout": "5m",
                "secrets": ["hub"],
            },
            inputs=INPUTS,
        ),
        "a",
    )
    assert step.resources == Resources(4096, ("H200",), 2, {"zone": "a"}, {"spot": "true"})
    assert step.fields["tensorParallel"] == 2
    assert step.retry == Retry(5, 0.5)
    assert step.cache == Cache("run", "s", 2_592_000.0, ("model",))
    assert step.timeout_s == 300.0
    assert step.secrets == ("hub",)


def test_every_field_of_the_workflow_reaches_the_plan(compiled) -> None:
    plan = compiled(
        {},
        budgetUsd="0.50",
        deadline="30m",
        priority=3,
        suspend=True,
        params={"x": 1},
        outputs={"m": "a.metrics"},
    )
    assert plan.namespace == "team-a"
    assert plan.budget_nanousd == 500_000_000
    assert plan.deadline_s == 1800.0
    assert plan.priority == 3
    assert plan.suspend
    assert plan.params == {"x": 1}
    assert plan.outputs == {"m": (StepSource("a", "metrics"),)}


@pytest.mark.parametrize(
    ("spec", "weights"),
    [
        ({}, UtilityWeights(1.0, 1.0, 1.0)),
        ({"optimize": "cost"}, UtilityWeights(0.25, 1.0, 0.5)),
        ({"optimize": "throughput"}, UtilityWeights(1.0, 0.25, 0.5)),
        ({"optimize": "latency"}, UtilityWeights(1.0, 0.1, 0.25)),
        ({"weights": {"alpha": 2, "beta": 0, "gamma": 0.5}}, UtilityWeights(2.0, 0.0, 0.5)),
    ],
)
def test_the_workflows_aim_becomes_utility_weights(compiled, spec, weights) -> None:
    assert compiled({}, **spec).weights == weights


def test_a_plan_survives_its_way_through_json(compiled) -> None:
    plan = compiled(GENERATE, {"matrix": {"x": [1, 2.5, "z"]}}, inputs=INPUTS)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_an_external_engine_is_reused_only_within_its_run(compiled) -> None:
    step = {"uses": "source.resolve", "with": {"uri": "https://x/y", "kind": "dataset"}}
    assert _step(compiled(step), "a").cache.reuse == "run"
    assert _step(compiled({}), "a").cache.reuse == "always"
    assert _step(compiled({**step, "cache": {"reuse": "never"}}), "a").cache.reuse == "never"


def test_a_matrix_makes_an_instance_for_each_combination_in_order_of_declaration(compiled) -> None:
    plan = compiled(
        {
            "name": "tune",
            "matrix": {"lr": [1e-5, 2], "seed": ["a", True]},
            "with": {"value": "${matrix.lr}"},
        },
    )
    assert [s.path for s in plan.steps] == [
        "tune[lr=1e-5,seed=a]",
        "tune[lr=1e-5,seed=true]",
        "tune[lr=2,seed=a]",
        "tune[lr=2,seed=true]",
    ]
    assert [s.params["value"] for s in plan.steps] == [1e-5, 1e-5, 2, 2]
    assert plan.steps[0].name == "tune"
    assert plan.steps[0].matrix == {"lr": 1e-5, "seed": "a"}


def test_a_star_concatenates_all_instances_in_order(compiled) -> None:
    plan = compiled(
        {**SQL, "name": "tune", "matrix": {"lr": [2, 1]}},
        {**SQL, "name": "all", "inputs": {"rows": "tune[*].rows"}},
        outputs={"all": "tune[*].rows"},
    )
    (edge,) = _step(plan, "all").edges
    assert edge.concatenate
    assert edge.sources == (StepSource("tune[lr=2]", "rows"), StepSource("tune[lr=1]", "rows"))
    assert plan.outputs["all"] == edge.sources


def test_a_selection_takes_one_instance_however_the_number_is_spelled(compiled) -> None:
    plan = compiled(
        {**SQL, "name": "tune", "matrix": {"lr": [1e-5, 2], "mode": ["x y", "z"]}},
        {**SQL, "name": "one", "inputs": {"rows": 'tune[lr=0.00001, mode="x y"].rows'}},
        {**SQL, "name": "some", "inputs": {"rows": "tune[lr=2.0,mode=*].rows"}},
    )
    (edge,) = _step(plan, "one").edges
    assert edge.sources == (StepSource("tune[lr=1e-5,mode=x y]", "rows"),)
    assert not edge.concatenate
    (edge,) = _step(plan, "some").edges
    assert [s.step for s in edge.sources] == ["tune[lr=2,mode=x y]", "tune[lr=2,mode=z]"]
    assert edge.concatenate


def test_an_instance_can_follow_the_instance_of_the_same_value(compiled) -> None:
    matrix = {"lr": [1, 2]}
    plan = compiled(
        {**SQL, "name": "tune", "matrix": matrix},
        {**SQL, "name": "test", "matrix": matrix, "inputs": {"rows": "tune[lr=matrix.lr].rows"}},
    )
    for lr in (1, 2):
        (edge,) = _step(plan, f"test[lr={lr}]").edges
        assert edge.sources == (StepSource(f"tune[lr={lr}]", "rows"),)


def test_a_condition_is_an_edge(compiled) -> None:
    plan = compiled(
        {"when": "steps['c'].metrics.value > 1 && params.go"},
        {"matrix": {"n": [1, 2]}, "when": "matrix.n > 1 || steps['d[n=${matrix.n}]'] == null"},
        {},
        {"matrix": {"n": [1, 2]}},
        params={"go": True},
    )
    assert _step(plan, "a").when_steps == ("c",)
    assert _step(plan, "b[n=2]").when == "matrix.n > 1 || steps['d[n=2]'] == null"
    assert _step(plan, "b[n=2]").when_steps == ("d[n=2]",)
    paths = [s.path for s in plan.steps]
    assert paths.index("c") < paths.index("a")
    assert paths.index("d[n=2]") < paths.index("b[n=2]")


@pytest.mark.parametrize(
    ("uses", "port", "params"),
    [
        ("llm.generate", "adapter", {"prompt": "{{ question }}"}),
        ("llm.agent", "adapter", {"prompt": "{{ question }}", "tools": ["sql"]}),
        ("llm.agent", "table", {"prompt": "{{ question }}", "tools": ["sql"]}),
        ("llm.score", "adapter", {"method": "logprob", "text": "{{ question }}"}),
        ("train.grpo", "reward", {"prompt": "{{ question }}"}),
        ("code.python", "table", {"code": "def main(table): return table"}),
    ],
)
def test_an_input_that_the_author_names_is_required_though_the_engine_can_do_without(
    compiled, uses, port, params
) -> None:
    kind = {"adapter": "adapter", "reward": "model", "table": "dataset"}[port]
    extra = {kind: f"cas:{kind}:{'a' * 64}.{'0' * 34}"}
    given = {port: "inputs.extra"}
    if uses != "code.python":
        given |= {"model": "inputs.base", "rows": "inputs.questions"}
    plan = compiled(
        {"uses": uses, "inputs": given, "with": params}, inputs={**INPUTS, "extra": extra}
    )
    assert {e.port: e.required for e in _step(plan, "a").edges} == dict.fromkeys(given, True)


def test_inline_rows_and_files_become_content_and_not_steps(compiled) -> None:
    rows, file, reference = (f"cas:dataset:{d * 64}.{'0' * 34}" for d in "12a")
    plan = compiled(
        {**SQL, "inputs": {"x": "inputs.rows", "y": "inputs.file", "z": "inputs.cas"}},
        inputs={
            "rows": {"rows": ROWS},
            "file": {"dataset": "./x.jsonl"},
            "cas": {"dataset": reference},
        },
        uploads={"rows": rows, "file": file},
        validate_only=False,
    )
    (step,) = plan.steps
    assert [e.sources[0] for e in step.edges] == [
        ArtifactSource("dataset", rows),
        ArtifactSource("dataset", file),
        ArtifactSource("dataset", reference),
    ]


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (
            {"model": "smollm2-135m-instruct"},
            {"uri": "builtin:smollm2-135m-instruct", "revision": ""},
        ),
        (
            {"model": f"hf://org/name@{'a' * 40}"},
            {"uri": "hf://org/name", "revision": "a" * 40},
        ),
    ],
)
def test_an_immutable_name_is_imported_directly(compiled, given, params) -> None:
    plan = compiled(GENERATE, inputs={**INPUTS, "base": given})
    assert [s.path for s in plan.steps] == ["inputs.base", "a"]
    assert plan.steps[0].engine == "model.import"
    assert plan.steps[0].params == params
    assert plan.steps[0].cache.reuse == "always"
    assert plan.steps[1].edges[0].sources == (StepSource("inputs.base", "model"),)


@pytest.mark.parametrize("uri", ["hf://org/name", "hf://org/name@main", "s3://b/k"])
def test_a_mutable_name_is_first_pinned_for_this_run(compiled, uri) -> None:
    inputs = {**INPUTS, "base": {"model": uri, "secrets": ["token"]}}
    pin, base, _ = compiled(GENERATE, inputs=inputs).steps
    assert (pin.path, pin.engine, pin.cache.reuse) == ("inputs.base.pin", "source.resolve", "run")
    assert {n: v for n, v in pin.params.items() if v} == {"uri": uri, "kind": "model"}
    assert base.edges[0].sources == (StepSource("inputs.base.pin", "pin"),)
    assert pin.secrets == base.secrets == ("token",)


def test_a_model_address_of_a_single_file_is_refused(compiled) -> None:
    with pytest.raises(SpecError, match=r"models are directories.*s3://") as refused:
        compiled(GENERATE, inputs={**INPUTS, "base": {"model": "https://h/p"}})
    assert refused.value.problems[0].path == "spec.inputs.base.model"


def test_an_input_that_nothing_reads_is_not_fetched(compiled) -> None:
    assert [s.path for s in compiled({}, inputs=INPUTS).steps] == ["a"]


def test_an_output_may_show_an_input(compiled) -> None:
    plan = compiled({}, inputs=INPUTS, outputs={"model": "inputs.base"})
    assert plan.outputs == {"model": (StepSource("inputs.base", "model"),)}
    assert [s.path for s in plan.steps] == ["inputs.base", "a"]


def test_twice_as_many_steps_are_twice_the_work_to_compile(compiled) -> None:
    def work_of(count: int) -> int:
        steps = [{"name": f"s{i}", "with": {"value": i}} for i in range(count)]
        for i, step in enumerate(steps[1:], start=1):
            step["inputs"] = {"x": f"s{i // 2}.metrics"}
        return calls_of(lambda: compiled(*steps))

    work_of(10)  # what is computed once is
    assert work_of(4000) < 2.1 * work_of(2000)

"""Everything wrong with a file, at once and with lines; the documentation and the examples."""

import json
import re
from pathlib import Path

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.graph.validate import check_loaded
from flowmesh_core.spec.load import load_text

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    p
    for p in (ROOT / "examples").rglob("*.yaml")
    # A plugin's example needs its engine: tests/flowmesh_cli/test_plugin.py runs it. A template
    # needs its parameters: tests/flowmesh_cli/test_set_parameters.py gives them.
    if "kind: FlowMesh" in p.read_text()
    and not (p.parent / "pyproject.toml").exists()
    and p.parent.name != "templates"
)
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/spec.md").read_text(), re.DOTALL | re.M)
WRONG = re.findall(r"^```yaml wrong\n(.*?)^```", (ROOT / "docs/spec.md").read_text(), re.S | re.M)


def check_text(text, catalog):
    """Returns every problem of a file, in order of line."""
    loaded, problems = load_text(text)
    for item in loaded:
        problems += check_loaded(item, catalog)
    return sorted(problems, key=lambda p: (p.line, p.column))


def test_mistakes_of_every_stage_are_reported_together() -> None:
    text = """\
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: x}
spec:
  priority: 010
  inputs: {base: {model: smollm2-135m-instruct}}
  steps:
    - name: sample
      uses: llm.generate
      inputs: {model: inputs.bas, rows: vote.rows}
      with: {prompt: "{{ question }}", temprature: 1}
      retry: {atempts: 3}
    - name: vote
      inputs: {rows: sampel.rows}
      with: {query: select 1}
"""
    found = [f"{p.line}:{p.column} {p.path}" for p in check_text(text, builtin_catalog())]
    assert found == [
        "5:13 spec.priority",
        "10:16 spec.steps[0].inputs.model",
        "11:40 spec.steps[0].with.temprature",
        "12:15 spec.steps[0].retry.atempts",
        "13:7 spec.steps[1].uses",
        "14:16 spec.steps[1].inputs.rows",
    ]


def test_a_missing_version_of_the_api_is_named_with_its_value() -> None:
    text = (
        "kind: FlowMeshWorkflow\nmetadata: {name: x}\nspec: {steps: [{name: a, uses: test.noop}]}"
    )
    (problem,) = check_text(text, builtin_catalog())
    assert (problem.path, problem.message) == ("apiVersion", "is required: flowmesh.dev/v1alpha1")


def test_a_mistake_in_one_document_does_not_hide_those_of_another() -> None:
    one = (
        "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshWorkflow\nmetadata: {name: x}\n"
        "spec: {steps: [{name: a, uses: test.nop}]}\n"
    )
    lines = [p.line for p in check_text(f"{one}---\n{one}---\nkind: X\n", builtin_catalog())]
    assert lines == [4, 9, 11]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_example_is_valid(path: Path) -> None:
    assert check_text(path.read_text(), builtin_catalog()) == []


def _addresses() -> list[tuple[str, str, str]]:
    """What examples and pages advise to write in place of their inputs, most of it in comments."""
    found = set()
    for path in [*EXAMPLES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for kind, address in re.findall(
            r"(\w+: )?(hf://[\w./@-]*\w)(?![\w./@-]*[\[<…])", path.read_text()
        ):
            dataset = kind == "dataset: " or address.startswith("hf://datasets/")
            found.add((path.name, "dataset" if dataset else "model", address))
    return sorted(found)


@pytest.mark.parametrize(("page", "kind", "address"), _addresses())
def test_every_address_that_an_example_recommends_is_valid(
    page: str, kind: str, address: str
) -> None:
    text = (
        "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshWorkflow\nmetadata: {name: x}\n"
        f"spec: {{inputs: {{x: {{{kind}: '{address}'}}}}, steps: [{{name: a, uses: test.noop}}]}}\n"
    )
    assert check_text(text, builtin_catalog()) == [], page


def test_the_page_of_the_examples_names_those_that_cannot_be_validated_alone() -> None:
    folder = ROOT / "examples"
    page = (folder / "README.md").read_text()
    claim = page.split("without running it")[1].partition("The examples use")[0]
    for path in folder.rglob("*.yaml"):
        name = path.relative_to(folder).as_posix()
        is_named = f"`{name}`" in claim or f"`{name.partition('/')[0]}/`" in claim
        assert is_named is (path not in EXAMPLES), name


def test_the_examples_recommend_addresses_of_models_and_data_sets() -> None:
    data = {page for page, kind, _ in _addresses() if kind == "dataset"}
    assert len(data & {p.name for p in EXAMPLES}) >= 10
    assert any(kind == "model" for _, kind, _ in _addresses())


def test_the_files_that_the_examples_name_exist() -> None:
    assert EXAMPLES
    for path in EXAMPLES:
        for name in re.findall(r"dataset: (\.\.?/[^\s}]+)", path.read_text()):
            rows = [json.loads(line) for line in (path.parent / name).read_text().splitlines()]
            assert rows


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_of_the_documentation_is_valid(text: str) -> None:
    assert check_text(text, builtin_catalog()) == []


def test_the_errors_in_the_documentation_match_the_reported_ones() -> None:
    documentation = (ROOT / "docs/spec.md").read_text()
    (wrong,) = WRONG
    found = check_text(wrong, builtin_catalog())
    assert found
    for problem in found:
        line = f"wrong.yaml:{problem.line}:{problem.column}: {problem.path}: {problem.message}"
        assert line in documentation


def test_the_documentation_names_every_field() -> None:
    documentation = (ROOT / "docs/spec.md").read_text()
    definitions = json.loads((ROOT / "docs/schema.json").read_text())["$defs"]
    kept = [
        d for name, d in definitions.items() if name.endswith(("Spec", "Selector", "Namespaces"))
    ]
    fields = {f for d in kept for f in d["properties"]}
    assert [f for f in sorted(fields) if f"`{f}`" not in documentation] == []


TWO_INPUTS = """
apiVersion: flowmesh.dev/v1alpha1
kind: FlowMeshWorkflow
metadata: {name: two}
spec:
  inputs:
    towns: {rows: [{town: Aldham}]}
    people: {rows: [{name: ada}]}
  steps:
    - name: towns
      uses: eval.exact-match
      inputs: {rows: inputs.towns}
      with: {prediction: town, target: town}
    - name: people
      uses: data.sql
      inputs: {people: inputs.people}
      with: {query: QUERY}
"""


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select name from people", ""),
        ("select current_date from people", "current_date is refused"),
        ("select avg(right::int) from people", 'syntax error at or near "::" at line 1'),
        ("select name from poeple", "there is no table 'poeple'"),
        ("select 1; select 2", "the query has 2 statements"),
        ("select random() from people", "random() is refused"),
        ("copy people to 'file'", "the query is not a SELECT"),
    ],
)
def test_queries_are_parsed_at_admission_and_each_input_has_separate_columns(query: str, told: str):
    found = check_text(TWO_INPUTS.replace("QUERY", query), builtin_catalog())
    assert [p.path for p in found] == ["spec.steps[1].with.query"] * bool(told)
    assert told in "".join(p.message for p in found)

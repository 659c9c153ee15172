"""What `fmesh validate` finds in files of rows, and besides with `--kubernetes`: files of this
machine, objects too large.
"""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.flowmesh_cli import flows

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.verbs.validate import validate_files
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_core.spec.size import MOST_OBJECT_BYTES

CLUSTER = Target(cluster=True)
EXAMPLES = Path(__file__).parents[3] / "examples"


def wrong(file: Path, *, kubernetes: bool = True) -> list[str]:
    try:
        validate_files(
            WorkflowSelection([file], None, None),
            place=CLUSTER,
            as_json=True,
            kubernetes=kubernetes,
        )
    except FilesError as e:
        return str(e).splitlines()
    return []


def workflow(folder: Path, inputs: dict[str, Any], **other: Any) -> Path:
    file = folder / "w.yaml"
    step = {
        "name": "a",
        "uses": "data.sql",
        "inputs": {"rows": "inputs.q"},
        "with": {"query": "select * from rows"},
    } | other
    document = {
        "apiVersion": flows.API,
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": {"inputs": inputs, "steps": [step]},
    }
    file.write_text(json.dumps(document))
    return file


def test_a_local_file_is_reported_with_its_location() -> None:
    file = EXAMPLES / "best-of-four.yaml"
    validate_files(WorkflowSelection([file], None, None), place=CLUSTER, as_json=True)
    [line] = wrong(file)
    assert line.startswith(f"{file}:13:17: spec.inputs.questions.dataset: ./demo/questions.jsonl")
    assert "`fmesh submit` uploads it" in line


def test_the_cluster_version_of_the_example_is_valid() -> None:
    assert wrong(EXAMPLES / "kubernetes" / "best-of-four.yaml") == []


def test_a_secret_without_its_kubernetes_object_is_reported_for_a_cluster(tmp_path: Path) -> None:
    rows = {"q": {"dataset": "https://example.org/q.jsonl", "secrets": ["HF_TOKEN"]}}
    file = workflow(tmp_path, rows)
    assert wrong(file, kubernetes=False) == []
    [line] = wrong(file)
    assert "spec.secrets.HF_TOKEN: the workflow does not say where the secret HF_TOKEN" in line
    assert "{name: hf-token, key: HF_TOKEN}" in line
    document = json.loads(file.read_text())
    document["spec"]["secrets"] = {"HF_TOKEN": {"name": "hub", "key": "token"}}
    file.write_text(json.dumps(document))
    assert wrong(file) == []


def test_a_valid_pool_is_reported_as_valid(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "kubernetes" / "pool-cpu.yaml"
    validate_files(WorkflowSelection([file], None, None), place=CLUSTER, as_json=False)
    assert capsys.readouterr().out == f"{file}: pool cpu, valid\n"


@pytest.mark.parametrize(("share", "fits"), [(0.9, True), (1.1, False)])
def test_a_workflow_too_large_for_one_object_is_reported(
    tmp_path: Path, share: float, *, fits: bool
) -> None:
    rows = [{"question": "x" * 1000}] * int(MOST_OBJECT_BYTES * share / 1016)
    found = wrong(workflow(tmp_path, {"q": {"rows": rows}}))
    assert found == [] if fits else "that a cluster keeps in one object" in found[0]


def test_the_cluster_example_has_the_same_steps_as_the_laptop_example() -> None:
    """Except for the place of the questions and the object's lifetime."""
    laptop, cluster = ((EXAMPLES / d / "best-of-four.yaml").read_text() for d in ("", "kubernetes"))

    def steps(text: str) -> str:
        return text.partition("  steps:")[2]

    assert steps(laptop)
    assert steps(laptop) == steps(cluster)


def test_columns_are_checked_against_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "1+1", "target": "2"}\n')
    duckdb.sql("select 1 as question, 2 as target").write_parquet(str(tmp_path / "q.parquet"))
    scoring = {"uses": "eval.exact-match", "with": {"prediction": "answr", "target": "target"}}
    for name in ("q.jsonl", "q.parquet"):
        inputs = {"q": {"dataset": f"./{name}"}}
        [line] = wrong(workflow(tmp_path, inputs, **scoring), kubernetes=False)
        assert "no column 'answr' in the rows; there is question, target" in line


def test_a_file_whose_content_does_not_match_its_extension_is_reported_with_its_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "1+1"}\nno rows\n')
    [line] = wrong(workflow(tmp_path, {"q": {"dataset": "./q.jsonl"}}), kubernetes=False)
    assert "spec.inputs.q.dataset: q.jsonl, line 2: not JSON" in line


def test_a_wrong_row_is_listed_beside_mistakes_of_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "1+1"}\nno rows\n')
    inputs = {"q": {"dataset": "./q.jsonl"}, "other": {"dataset": "./none.jsonl"}}
    file = workflow(tmp_path, inputs, **{"with": {"query": "selec * from rows"}})
    lines = wrong(file, kubernetes=False)
    assert [line.split(": ")[1] for line in lines] == [
        "spec.inputs.q.dataset",
        "spec.inputs.other.dataset",
        "spec.steps[0].with.query",
    ]
    assert "q.jsonl, line 2: not JSON" in lines[0]


def test_a_wrong_row_is_listed_beside_mistakes_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "q.jsonl").write_text("[]")
    (tmp_path / "rows" / "q.jsonl").write_text("no rows")
    inputs = {"q": {"dataset": "./q.jsonl"}}
    files = [workflow(tmp_path / "rows", inputs), workflow(tmp_path, inputs, uses="data.sq")]
    with pytest.raises(FilesError) as caught:
        read_sources(WorkflowSelection(files, None, None))
    assert [line.partition(":")[0] for line in caught.value.lines] == [
        *[str(files[0])],
        *[str(files[1])] * 2,
    ]


def test_a_missing_file_is_listed_where_the_steps_cannot_be_read(tmp_path: Path) -> None:
    file = workflow(tmp_path, {"q": {"dataset": "./none.jsonl"}})
    document = json.loads(file.read_text())
    del document["apiVersion"]
    document["spec"]["step"] = document["spec"].pop("steps")
    file.write_text(json.dumps(document))
    found = " ".join(wrong(file, kubernetes=False))
    for problem in ("apiVersion: is required", "spec.step:", "spec.inputs.q.dataset:"):
        assert problem in found


def test_the_rows_of_a_service_are_checked(tmp_path: Path) -> None:
    service = (EXAMPLES / "services" / "ask-docs.yaml").read_text()
    assert "{output: build-index/vectors, follow: true}" in service
    file = tmp_path / "ask.yaml"
    file.write_text(
        service.replace("{output: build-index/vectors, follow: true}", "{dataset: ./docs.jsonl}")
    )
    code = (EXAMPLES / "services" / "rerank.py").read_text()
    (tmp_path / "rerank.py").write_text(code)
    (tmp_path / "docs.jsonl").write_text("no rows")
    [line] = wrong(file, kubernetes=False)
    assert "docs.jsonl, line 1: not JSON" in line


def test_an_input_is_replaced_by_a_file_of_this_folder_or_an_output_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "flows", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (here / "rows.jsonl").write_text('{"a": 1}\n')
    monkeypatch.chdir(here)
    file = workflow(there, {"q": {"dataset": "./missing.jsonl", "limit": 2}})

    def replaced(text: str) -> Any:
        (source,) = read_sources(WorkflowSelection([file], inputs=[text])).workflows
        return source.document.value["spec"]["inputs"]["q"]

    assert replaced("q=./rows.jsonl") == {"dataset": str(here / "rows.jsonl"), "limit": 2}
    assert replaced("q=nightly/answers") == {"output": "nightly/answers", "limit": 2}
    assert replaced("q=s3://bucket/key") == {"dataset": "s3://bucket/key", "limit": 2}
    with pytest.raises(FilesError, match=r"w\.yaml:\d+:\d+: spec\.inputs\.q\.dataset: .*does not"):
        replaced("q=./none.jsonl")
    (there / "missing.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(CliError, match=r"no workflow has spec\.inputs\.p; there is q"):
        replaced("p=./rows.jsonl")
    with pytest.raises(CliError, match="'q' is not of the form input=source"):
        replaced("q")
    chosen = WorkflowSelection([file], inputs=["q=nightly/answers"])
    validate_files(chosen, place=CLUSTER, as_json=True, kubernetes=True)


@pytest.mark.parametrize(
    ("name", "content"), [("q.jsonl", ""), ("q.json", "[]"), ("q.csv", "question\n"), ("q.csv", "")]
)
def test_a_query_over_an_empty_file_is_refused_with_the_name_of_the_file(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    inputs, query = {"q": {"dataset": f"./{name}"}}, {"query": "select question from rows"}
    (line,) = wrong(workflow(tmp_path, inputs, **{"with": query}), kubernetes=False)
    assert f"'rows' comes from inputs.q (./{name}), which has 0 rows and so no columns" in line
    assert wrong(workflow(tmp_path, inputs), kubernetes=False) == []  # names no column


def test_parquet_without_rows_has_columns(tmp_path: Path) -> None:
    duckdb.sql("select 'a' as question where false").write_parquet(str(tmp_path / "q.parquet"))
    inputs, query = {"q": {"dataset": "./q.parquet"}}, {"query": "select question from rows"}
    assert wrong(workflow(tmp_path, inputs, **{"with": query}), kubernetes=False) == []
    (line,) = wrong(
        workflow(tmp_path, inputs, **{"with": {"query": "select n from rows"}}), kubernetes=False
    )
    assert "tables: rows(question)" in line


def test_an_engine_that_only_the_command_knows_is_named_with_what_the_fabric_needs() -> None:
    [source] = read_sources(
        WorkflowSelection([EXAMPLES / "kubernetes/hello.yaml"], None, None)
    ).workflows
    found = Problem("spec.steps[0].uses", "no engine 'text.word-count'; there is code.python")
    [line] = source.refused_lines([found])
    assert line.endswith(
        "spec.steps[0].uses: no engine 'text.word-count' in the running fabric, though it is"
        " installed here; restart the fabric of this machine; a cluster needs it in its images"
    )
    other = Problem("spec.steps[0].with", "is required")
    assert source.refused_lines([other]) == source.lines([other])

"""Workflows that no worker of this installation can run are refused before a start."""

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh

from flowmesh_api.openai.batches import BatchPlan
from flowmesh_api.v1.plan import Forecast, PlannedStep
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.installation import install_command
from flowmesh_cli.local import capabilities
from flowmesh_cli.verbs.preflight import (
    refuse_batch_that_no_worker_here_can_run,
    refuse_what_no_worker_here_can_run,
)
from flowmesh_cli.verbs.run import checked, run_files
from flowmesh_cli.verbs.serve import serve
from flowmesh_cli.verbs.service_offers import ServeOptions
from flowmesh_cli.verbs.validate import validate_files
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.supported_pythons import unsupported

MODEL = "smollm2-135m-instruct"
LIBRARIES = {"torch", "vllm", "transformers", "trl", "peft"}
ROOT = Path(__file__).parents[3]


def asking(**words: Any) -> dict[str, Any]:
    step = {
        "name": "ask",
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
        "with": {"prompt": "{{ q }}", **words},
    }
    inputs = {"base": {"model": "smollm2-135m-instruct"}, "rows": {"rows": [{"q": "a"}]}}
    return {"inputs": inputs, "steps": [step]}


def data() -> dict[str, Any]:
    query = {"query": "select * from rows"}
    step = {"name": "all", "uses": "data.sql", "inputs": {"rows": "inputs.rows"}, "with": query}
    return {"inputs": {"rows": {"rows": [{"q": "a"}]}}, "steps": [step]}


@pytest.fixture
def base_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes an installation without the libraries of the worker extras."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name in LIBRARIES else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "find_devices", lambda: None)


def run(flow: Path, state: Path) -> None:
    run_files(
        WorkflowSelection([flow]), workers=1, price_usd_per_hour=None, weights=None, policies=True,
        place=Target(state_dir=state), as_json=False,
    )  # fmt: skip


@pytest.mark.usefixtures("base_install", "no_devices")
def test_a_base_install_refuses_models_with_the_command_that_adds_them(tmp_path: Path) -> None:
    flow, state = flows.write(tmp_path, "ask", asking()), tmp_path / "state"
    with pytest.raises(CliError) as caught:
        run(flow, state)
    assert caught.value.code == ExitCode.REFUSED
    assert caught.value.where == "team-a/ask"
    assert "inputs.base (model.import), ask (llm.generate)" in caught.value.message
    assert "torch, transformers" in caught.value.message
    assert f"pip install --python {sys.executable}" in caught.value.remedy
    assert "[worker-" in caught.value.remedy
    assert not state.exists()  # no fabric was started
    works = checked(WorkflowSelection([flows.write(tmp_path, "data", data())]))
    refuse_what_no_worker_here_can_run(works, Target(state_dir=state))


@pytest.mark.usefixtures("base_install", "no_devices")
def test_validate_refuses_what_run_would_refuse_and_not_what_is_for_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Target(state_dir=tmp_path / "state")
    flow = WorkflowSelection([flows.write(tmp_path, "ask", asking())])
    with pytest.raises(CliError, match=r"no worker of this installation can run .*ask") as caught:
        validate_files(flow, place=here, as_json=False)
    assert caught.value.code == ExitCode.REFUSED
    assert "pip install" in caught.value.remedy
    wrong = WorkflowSelection([flows.write(tmp_path, "wrong", asking(promt="{{ q }}"))])
    with pytest.raises(FilesError) as mistaken:  # its mistakes come first
        validate_files(wrong, place=here, as_json=False)
    assert mistaken.value.code == ExitCode.USAGE
    capsys.readouterr()
    validate_files(flow, place=here, as_json=False, kubernetes=True)
    validate_files(flow, place=Target(cluster=True), as_json=False)
    validate_files(
        WorkflowSelection([flows.write(tmp_path, "data", data())]), place=here, as_json=False
    )
    said = capsys.readouterr().out.splitlines()
    assert [line.rpartition(", ")[2] for line in said] == ["valid"] * 3
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("base_install")
@pytest.mark.parametrize("embeddings", [False, True])
def test_a_base_install_serves_no_model_and_says_so_at_once(
    tmp_path: Path, embeddings: bool
) -> None:
    state, options = tmp_path / "state", ServeOptions((MODEL,), embeddings=embeddings)
    with pytest.raises(CliError) as caught:
        serve(options, workers=1, port=0, state_dir=state, as_json=False)
    assert caught.value.code == ExitCode.REFUSED
    assert caught.value.where == MODEL
    assert "inputs.base (model.import), llm (llm." in caught.value.message
    assert "torch, transformers" in caught.value.message
    assert f"pip install --python {sys.executable}" in caught.value.remedy
    assert not state.exists()  # no fabric was started


@pytest.mark.usefixtures("base_install")
def test_a_batch_that_no_worker_here_can_answer_is_refused_unless_all_is_published() -> None:
    def planned(expect: str) -> BatchPlan:
        engines = {"inputs.model": "model.import", "answers": "llm.openai"}
        steps = tuple(PlannedStep(path, engine, expect) for path, engine in engines.items())
        forecast = Forecast("b", "default", steps, 2, 0, 0, 0, 0.0, 0.0, 0.0, 0, (), ())
        return BatchPlan("file-1", "/v1/chat/completions", 2, 0, forecast, ())

    with pytest.raises(CliError, match=r"inputs.model \(model.import\), answers \(llm.openai\)"):
        refuse_batch_that_no_worker_here_can_run(Path("in.jsonl"), planned("run"))
    refuse_batch_that_no_worker_here_can_run(Path("in.jsonl"), planned("hit"))


def test_a_step_that_may_be_skipped_is_not_refused(tmp_path: Path) -> None:
    (source,) = checked(WorkflowSelection([flows.write(tmp_path, "data", data())])).workflows
    assert source.plan is not None
    assert [s.path for s in capabilities.missing_engines([source.plan], Engines([]))] == ["all"]
    steps = tuple(replace(step, when="1 > 2") for step in source.plan.steps)
    assert capabilities.missing_engines([replace(source.plan, steps=steps)], Engines([])) == []


@pytest.mark.usefixtures("no_devices")
def test_a_dtype_that_no_worker_here_serves_is_refused_at_its_line(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the worker extra")
    wrong = asking(dtype="bfloat16", implementation="vllm", batchInvariant=True)
    state = tmp_path / "state"
    with pytest.raises(FilesError, match="no worker serves") as caught:
        run(flows.write(tmp_path, "ask", wrong), state)
    (line,) = caught.value.lines
    assert line.startswith(f"{tmp_path / 'ask.yaml'}:")
    assert "spec.steps[0].with" in line
    assert "dtype: float32" in line
    assert not state.exists()  # no fabric was started, so no model was imported
    right = asking(dtype="float32", implementation="vllm", batchInvariant=True)
    works = checked(WorkflowSelection([flows.write(tmp_path, "right", right)]))
    refuse_what_no_worker_here_can_run(works, Target(state_dir=state))


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("verb", ["validate", "run"])
def test_resources_that_this_machine_does_not_have_are_refused_at_their_lines(
    tmp_path: Path, verb: str
) -> None:
    flow = data()
    flow["steps"][0]["resources"] = {"memory": "900Ti", "labels": {"zone": "mars"}}
    file, state = flows.write(tmp_path, "far", flow), tmp_path / "state"
    calls = {
        "run": lambda: run(file, state),
        "validate": lambda: validate_files(
            WorkflowSelection([file]), place=Target(state_dir=state), as_json=False
        ),
    }
    with pytest.raises(FilesError) as caught:
        calls[verb]()
    assert caught.value.code == ExitCode.REFUSED
    fields = [line.split(" ")[1] for line in caught.value.lines]
    assert sorted(fields) == [
        "spec.steps[0].resources.labels.zone:",
        "spec.steps[0].resources.memory:",
    ]
    assert all(line.startswith(f"{file}:") for line in caught.value.lines)
    assert not state.exists()


@pytest.mark.usefixtures("no_devices")
def test_devices_that_this_machine_does_not_have_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the worker extra")
    flow = asking(dtype="float32")
    flow["steps"][0]["resources"] = {"gpuProduct": ["nvidia-h100"], "tensorParallel": 4}
    works = checked(WorkflowSelection([flows.write(tmp_path, "ask", flow)]))
    with pytest.raises(FilesError) as caught:
        refuse_what_no_worker_here_can_run(works, Target(state_dir=tmp_path / "state"))
    devices, products = sorted(line.partition(": ")[2] for line in caught.value.lines)[::-1]
    assert "resources.tensorParallel: step 'ask': no worker has 4 devices; there is 1" in devices
    assert "resources.gpuProduct: step 'ask': no worker has nvidia-h100; there is cpu" in products


@pytest.mark.slow
def test_a_published_result_needs_no_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, place = flows.write(tmp_path, "data", data()), Target(state_dir=tmp_path / ".flowmesh")
    assert fmesh("run", flow, cwd=tmp_path).returncode == 0
    monkeypatch.setattr(capabilities, "installed_engines", lambda: Engines([]))
    refuse_what_no_worker_here_can_run(checked(WorkflowSelection([flow])), place)
    with pytest.raises(CliError, match="can run all"):
        refuse_what_no_worker_here_can_run(checked(WorkflowSelection([flow], ["team-z"])), place)


def test_the_install_command_adds_the_extra_to_this_installation_with_its_tested_versions() -> None:
    said = install_command("worker-cpu")
    assert " 'flowmesh-fabric[worker-cpu]' " in said
    files = [Path(word) for word in said.split() if word.endswith(".txt")]
    assert [file.name for file in files] == ["cpu.txt", "overrides-cpu.txt"]
    assert [file.read_text() for file in files] == [
        (ROOT / "constraints" / file.name).read_text() for file in files
    ]


def test_where_uv_is_missing_the_command_installs_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert install_command("worker-cpu").startswith("uv pip install --python ")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    own = f"{sys.executable} -m"
    begins = f"{own} pip install uv && {own} uv pip install --python {sys.executable} "
    assert install_command("worker-cpu").startswith(begins)


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)]
)
def test_a_python_that_the_model_libraries_do_not_support_is_named(
    version: tuple[int, int], fits: bool
) -> None:
    said = unsupported(version)
    assert fits == (said == "")
    if not fits:
        assert f"Python 3.{version[1]}" in said
        assert "3.11 to 3.13" in said

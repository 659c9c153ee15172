"""Guards of the repository's layout, its import rules and its pins."""

import configparser
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS_OF_THE_WORKER = {
    "worker_agent",
    "catalog",
    "dataset",
    "decoding",
    "errors",
    "gc_of_servers",
    "identity",
    "json_schemas",
    "openai",
    "protocol",
    "serving",  # the queue of calls alone: its other modules are in the rule
    "stages",
    "units",
}


def test_operator_has_no_init_because_it_would_shadow_the_standard_library() -> None:
    assert (ROOT / "operator").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_folder_of_the_core_is_in_the_workers_import_rule() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    forbidden = rules["importlinter:contract:worker"]["forbidden_modules"].split()
    core = ROOT / "core" / "flowmesh_core"
    folders = {path.stem for path in core.iterdir() if path.suffix in {"", ".py"}}
    hidden = folders - FOLDERS_OF_THE_WORKER - {"__init__", "__pycache__", "py"}
    assert {f"flowmesh_core.{folder}" for folder in hidden} <= set(forbidden)


def test_every_package_is_typed_and_installed() -> None:
    for where in _pyproject()["tool"]["setuptools"]["packages"]["find"]["where"]:
        package = ROOT / where / f"flowmesh_{where}"
        assert (package / "__init__.py").exists()
        assert (package / "py.typed").exists()


@pytest.mark.parametrize("name", ["cpu.txt", "gpu.txt", "ray.txt", "dask.txt"])
def test_constraints_pin_every_package_and_name_no_host(name: str) -> None:
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    odd = [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.+!]+", line)]
    assert odd == []


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("cpu.txt", ["operator", "worker-cpu", "sim", "dev"]),
        ("gpu.txt", ["operator", "worker-gpu"]),
    ],
)
def test_every_requested_package_is_pinned(name: str, extras: list[str]) -> None:
    project = _pyproject()["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    names = {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower().replace(".", "-") for one in asked}
    here = {"flowmesh-fabric-sdk"}  # a distribution of this repository, at the same version
    assert names - here - {line.partition("==")[0] for line in _constraints(name)} == set()


def test_every_entry_point_names_an_existing_module() -> None:
    groups = _pyproject()["project"]["entry-points"]
    for target in [target for group in groups.values() for target in group.values()]:
        module = target.partition(":")[0]
        package = module.partition(".")[0].removeprefix("flowmesh_")
        path = ROOT / package / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), target


def test_constraints_exclude_the_kubernetes_client_that_conflicts_with_botocore() -> None:
    for name in ("cpu.txt", "gpu.txt"):
        assert "kubernetes==37.0.2" not in _constraints(name)


def test_the_table_of_names_reports_missing_stale_and_silent_names() -> None:
    module = _check("check_names")
    lost = module.Name("FailureKind", "lost", "", "errors.py:1")
    gone = {("FailureKind", "gone"): "no longer there"}
    assert len(module.problems([lost], gone)) == 2
    assert len(module.problems([lost], {("FailureKind", "lost"): ""})) == 1
    assert module.problems([lost], {("FailureKind", "lost"): "the worker left"}) == []


def test_the_table_of_names_says_of_a_metric_what_its_help_text_says() -> None:
    module = _check("check_names")
    metric = module.Name("Metrics", "flowmesh_bill_usd", "Cost of all workers", "billing.py:1")
    key = ("Metrics", "flowmesh_bill_usd")
    other = {key: "What workers cost"}
    assert module.problems([metric], {key: "Cost of all workers"}) == []
    [problem] = module.problems([metric], other)
    assert "its HELP text" in problem
    assert "| Cost of all workers |" in module.render([metric], other)


def test_a_metric_whose_name_is_a_constant_of_another_module_has_its_help_text() -> None:
    module = _check("check_names")
    found = {name.value: name.meaning for name in module.names_in_code()}
    assert found["flowmesh_pool_replicas_desired"].startswith("Workers that a pool should have")


def test_the_table_of_attacks_reports_unlisted_attacks_and_tests_that_do_not_exist(
    tmp_path: Path,
) -> None:
    module = _check("check_attacks")
    listed, unlisted = "tests/attacks/test_01_a.py", "e2e/attacks/test_k1_b.py"
    for name in (listed, unlisted):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("def test_it() -> None: ...")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "security.md").write_text("| a rule | `tests/lost.py` |")
    lines = (f"`{listed}`", f"`{listed}::test_it`", f"`{listed}::test_lost`")
    (tmp_path / "docs" / "attacks.md").write_text("\n".join(lines))
    missing = [problem.split(": ")[0] for problem in module.missing_tests(tmp_path)]
    assert missing == ["docs/attacks.md:3", "docs/security.md:1"]
    [problem] = module.unlisted_attacks(tmp_path)
    assert unlisted in problem


def test_the_page_of_security_reports_rules_without_a_test(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    rows = ["| rule | how |", "| --- | --- |", "| a rule | `tests/a.py` |", "| another | so |"]
    (tmp_path / "docs" / "security.md").write_text("\n".join(rows))
    [problem] = _check("check_attacks").untested_rules(tmp_path)
    assert problem.startswith("docs/security.md:4")


def _check(name: str) -> Any:
    """Returns a module of ``hack/``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "hack" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _constraints(name: str) -> list[str]:
    return (ROOT / "constraints" / name).read_text().splitlines()

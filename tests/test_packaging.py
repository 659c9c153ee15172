"""The package's metadata: its versions of Python, and its installation before a release."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from flowmesh_worker.supported_pythons import NEWEST, OLDEST

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())
CLIENT_MB = 30
README = (ROOT / "README.md").read_text()


def test_the_base_install_has_no_upper_bound_of_python() -> None:
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_tested_python_versions_are_those_that_a_worker_supports() -> None:
    start = "Programming Language :: Python :: "
    tried = [c.removeprefix(start) for c in PROJECT["classifiers"] if c.startswith(f"{start}3.")]
    assert tried == [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    for version in tried:
        assert version in README


def test_readme_installs_from_a_clone_since_nothing_is_published() -> None:
    installing = README.partition("## Installing")[2].partition("\n## ")[0]
    assert "Nothing is published yet" in installing
    commands = re.findall(r"^uv pip install (\S+)", installing, re.MULTILINE)
    assert commands == [".", "./sdk", "'.[worker-cpu]'"]
    for named in re.findall(r"constraints/[\w.-]+", installing):
        assert (ROOT / named).is_file(), named
    extras = set(PROJECT["optional-dependencies"])
    assert set(re.findall(r"\[([a-z-]+)\]", installing)) == extras


def test_the_readmes_workflow_uses_the_prompt_of_the_demo() -> None:
    """The prompt that scored 0.73, not one of 0.1; the steps of both are the same action."""
    demo = (ROOT / "examples" / "demo" / "2-best-of-four.yaml").read_text()
    (prompt,) = re.findall(r"^ +prompt: .*$", demo, re.MULTILINE)
    examples = [ROOT / "examples" / folder / "best-of-four.yaml" for folder in (".", "kubernetes")]
    for page in (ROOT / "README.md", ROOT / "docs" / "spec.md", *examples):
        assert prompt in page.read_text(), page
    assert "examples/demo/questions.jsonl" in README


def test_the_fabric_requires_the_client_of_its_own_version() -> None:
    name, version = CLIENT["project"]["name"], CLIENT["project"]["version"]
    assert version == PROJECT["version"]
    assert f"{name}=={version}" in PROJECT["dependencies"]


def test_the_client_has_every_package_of_its_folders_and_the_fabric_none_of_them() -> None:
    folders = ("api", "documents", "sdk")
    there = {
        ".".join(path.parent.relative_to(ROOT / folder).parts)
        for folder in folders
        for path in (ROOT / folder).rglob("__init__.py")
        if "build" not in path.parts
    }
    assert set(CLIENT["tool"]["setuptools"]["packages"]) == there
    fabric = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert not set(folders) & set(fabric["packages"]["find"]["where"])


@pytest.mark.slow
def test_the_client_installs_alone_and_is_small(tmp_path: Path) -> None:
    [uv] = (ROOT / ".cache").glob("uv-*/bin/uv")
    for folder in ("api", "documents", "sdk"):  # a copy, since a build leaves files beside its own
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("build"))
    dist = tmp_path / "dist"
    _run(uv, "build", "--system-certs", "--wheel", "--out-dir", dist, tmp_path / "sdk")
    [wheel] = dist.glob("*.whl")
    target = tmp_path / "installed"
    install = ("pip", "install", "--system-certs", "--python", sys.executable, "--target", target)
    _run(uv, *install, "--constraints", ROOT / "constraints" / "cpu.txt", wheel)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert size < CLIENT_MB * 1e6
    program = """
import sys, flowmesh_sdk as fm
fm.load("apiVersion: flowmesh.dev/v1alpha1\\nkind: FlowMeshWorkflow\\nspec: {steps: []}")
assert fm.__file__.startswith(sys.argv[1]), fm.__file__
print(*sorted(m for m in sys.modules if m.startswith("flowmesh") and "." not in m))
"""
    alone = {**os.environ, "PYTHONPATH": str(target)}
    done = _run(sys.executable, "-S", "-c", program, target, env=alone)
    assert done.split() == ["flowmesh_api", "flowmesh_documents", "flowmesh_sdk"]


def _run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_release_calls_the_targets_that_build_it_and_nothing_else() -> None:
    (workflow,) = (ROOT / ".github" / "workflows").iterdir()
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands == ["make dist images chart"]


def test_the_chart_has_the_version_of_the_fabric() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "flowmesh" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {PROJECT["version"]}

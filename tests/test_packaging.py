"""The package's metadata: its versions of Python, and its installation before a release."""

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from hack.check_base import pyenv_folders
from hack.version import PLACES, problems, write
from packaging.requirements import Requirement

from flowmesh_worker.supported_pythons import NEWEST, OLDEST

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())
CLIENT_MB = 30
README = (ROOT / "README.md").read_text()


def test_the_base_install_has_no_upper_bound_of_python() -> None:
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_pythons_of_pyenv_are_found_behind_its_shims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "versions" / "3.13.0" / "bin"
    there.mkdir(parents=True)
    command = tmp_path / "shims" / "pyenv"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n[ $1 = root ] && echo {tmp_path}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    assert pyenv_folders() == [str(there)]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pyenv_folders() == []


@pytest.mark.parametrize("name", ["blake3", "cel-python", "duckdb", "jinja2", "orjson", "pyarrow"])
def test_what_results_depend_on_has_the_tested_version_and_an_upper_bound(name: str) -> None:
    """An installation without constraints must not make other results under equal action ids."""
    [wanted] = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == name]
    assert any(bound.operator == "<" for bound in wanted.specifier)
    for file in ("cpu.txt", "gpu.txt"):
        pins = map(Requirement, (ROOT / "constraints" / file).read_text().splitlines())
        [tested] = [next(iter(pin.specifier)).version for pin in pins if pin.name == name]
        assert tested in wanted.specifier


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


def test_the_notes_of_the_chart_say_that_nothing_is_published() -> None:
    notes = (ROOT / "charts" / "flowmesh" / "templates" / "NOTES.txt").read_text()
    assert "Nothing of FlowMesh is published yet" in notes
    assert "make images" in notes
    assert (ROOT / "examples" / "kubernetes" / "hello.yaml").is_file()


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


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` builds, of the files as they are here."""
    [uv] = (ROOT / ".cache").glob("uv-*/bin/uv")
    folder = tmp_path_factory.mktemp("dist")
    _run(ROOT / "hack" / "build_dist.sh", uv, folder)
    return folder


def _file(dist: Path, pattern: str) -> Path:
    [found] = dist.glob(pattern)
    return found


@pytest.mark.slow
def test_a_release_has_a_wheel_and_a_source_distribution_of_both(dist: Path) -> None:
    version = PROJECT["version"]
    for name in ("flowmesh_fabric", "flowmesh_fabric_sdk"):
        assert (dist / f"{name}-{version}-py3-none-any.whl").is_file()
        assert (dist / f"{name}-{version}.tar.gz").is_file()


@pytest.mark.slow
def test_the_source_distribution_has_every_file_and_no_link(dist: Path) -> None:
    with tarfile.open(_file(dist, "flowmesh_fabric-*.tar.gz")) as tar:
        members = tar.getmembers()
    assert [m.name for m in members if m.issym() or m.islnk()] == []
    there = {m.name.partition("/")[2] for m in members if m.isfile()}
    tracked = set(_run("git", "-C", ROOT, "ls-files").split("\n")) - {""}
    links = {name for name in tracked if (ROOT / name).is_symlink() and (ROOT / name).is_dir()}
    assert tracked - links - there == set()
    assert {name for name in there if name.endswith(".pyc") or "/.venv/" in name} == set()


@pytest.mark.slow
def test_the_wheel_has_the_definitions_and_the_tested_versions(dist: Path) -> None:
    with zipfile.ZipFile(_file(dist, "flowmesh_fabric-*.whl")) as wheel:
        names = wheel.namelist()
        definitions = {n: wheel.read(n) for n in names if n.startswith("flowmesh_core/spec/crds/")}
        pins = {n: wheel.read(n) for n in names if n.startswith("flowmesh_cli/constraints/")}
        metadata = wheel.read(f"flowmesh_fabric-{PROJECT['version']}.dist-info/METADATA").decode()
    assert {Path(name).name: text for name, text in definitions.items()} == {
        file.name: file.read_bytes() for file in (ROOT / "crds").iterdir()
    }
    assert {Path(name).name: text for name, text in pins.items()} == {
        name: (ROOT / "constraints" / name).read_bytes()
        for name in ("cpu.txt", "gpu.txt", "overrides-cpu.txt")
    }
    for line in ("Author: The FlowMesh authors", "Project-URL: Homepage, ", "Classifier: Typing"):
        assert line in metadata


@pytest.mark.slow
def test_the_client_installs_alone_and_is_small(dist: Path, tmp_path: Path) -> None:
    [uv] = (ROOT / ".cache").glob("uv-*/bin/uv")
    target = tmp_path / "installed"
    install = ("pip", "install", "--system-certs", "--python", sys.executable, "--target", target)
    wheel = _file(dist, "flowmesh_fabric_sdk-*.whl")
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


def test_every_place_has_the_version_of_the_fabric() -> None:
    assert problems(ROOT, []) == []


def _copy(folder: Path) -> Path:
    for name in {file for file, _ in PLACES} | {"CHANGELOG.md"}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    return folder


def test_a_tag_of_another_version_publishes_nothing(tmp_path: Path) -> None:
    root = _copy(tmp_path)
    (problem,) = problems(root, ["v7.0.0"])
    assert "v7.0.0" in problem
    assert f"version {PROJECT['version']}" in problem
    write(root, "7.0.0", "2027-01-31")
    assert problems(root, ["v7.0.0"]) == []


def test_the_next_version_is_written_into_each_place_and_heads_the_changelog(
    tmp_path: Path,
) -> None:
    root = _copy(tmp_path)
    write(root, "7.0.0", "2027-01-31")
    assert "flowmesh-fabric-sdk==7.0.0" in (root / "pyproject.toml").read_text()
    assert 'appVersion: "7.0.0"' in (root / "charts" / "flowmesh" / "Chart.yaml").read_text()
    before = (ROOT / "CHANGELOG.md").read_text()
    heading = "## [Unreleased]\n\n## [7.0.0] - 2027-01-31\n"
    assert (root / "CHANGELOG.md").read_text() == before.replace("## [Unreleased]\n", heading, 1)
    (root / "sdk" / "pyproject.toml").write_text('version = "6.0.0"\n')
    assert "sdk/pyproject.toml" in " ".join(problems(root, []))


@pytest.mark.parametrize("image", ["operator", "worker"])
def test_the_programs_of_an_image_run_with_the_python_that_has_the_libraries(
    image: str, tmp_path: Path
) -> None:
    """``fmesh`` in a pod had the Python of the base image, and found nothing to import."""
    text = (ROOT / f"Dockerfile.{image}").read_text()
    assert "uv venv --python" in text
    assert " /opt/flowmesh" in text
    (found,) = re.findall(r"(sed .*?) /opt/code/bin/\*", text)
    program = tmp_path / "fmesh"
    program.write_text("#!/usr/bin/python3\nimport sys\n")
    subprocess.run([*shlex.split(found), str(program)], check=True)
    assert program.read_text() == "#!/opt/flowmesh/bin/python\nimport sys\n"


def test_what_helm_packages_is_no_link() -> None:
    """Helm follows links with a warning, and an archive of the chart's folder alone lacks them."""
    assert [p for p in (ROOT / "charts").rglob("*") if p.is_symlink()] == []

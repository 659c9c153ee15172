"""The package's metadata: its versions of Python, and its installation before a release."""

import re
import tomllib
from pathlib import Path

from flowmesh_worker.supported_pythons import NEWEST, OLDEST

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
    assert commands == [".", "'.[worker-cpu]'"]
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

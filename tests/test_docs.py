"""The pages of ``docs/`` name only existing files, kinds of failure and commands."""

import re
from pathlib import Path

import pytest
import typer.main

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.verbs.run import checked
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FailureKind

ROOT = Path(__file__).parent.parent
SKILL, LLMS = ROOT / "SKILL.md", ROOT / "llms.txt"
PAGES = [ROOT / "README.md", SKILL, LLMS, *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+?)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:`|^\$ |^)(?:\.venv/bin/)?fmesh ([a-z][a-z-]*)", re.MULTILINE)
CALL = re.compile(r"`fmesh ([^`]+)`")
TEST = re.compile(r"`((?:tests|e2e|examples|docs)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_and_path_on_a_page_resolves(page: Path) -> None:
    text = page.read_text()
    wanted = [page.parent / link for link in LINK.findall(text)]
    wanted += [ROOT / path for path in TEST.findall(text)]
    assert [str(path) for path in wanted if not path.exists()] == []


def test_fields_that_pages_name_exist() -> None:
    """Names in camel case in code spans, against schemas, manifests and the catalog of engines."""
    files = [ROOT / name for name in ("docs/schema.json", "docs/openapi.json")]
    files += [ROOT / "tests/golden/engines.json", *ROOT.glob("core/flowmesh_core/catalog/**/*.py")]
    for folder in ("charts", "crds", "examples", "e2e"):
        files += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".yaml", ".json", ".py")]
    known = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    known |= {"finishReason", "policyOptions", "stabilizationWindowSeconds", "tokenFile"}
    named = {
        (page.name, field)
        for page in PAGES
        for span in re.findall(r"`([^`\n]+)`", page.read_text())
        for field in re.findall(r"(?<![\w./-])[a-z]+(?:[A-Z][a-z0-9]+)+(?![\w(])", span)
    }
    assert len(named) > 100
    assert {(page, field) for page, field in named if field not in known} == set()


def test_the_serving_page_has_every_error_code_of_a_router() -> None:
    sources = (ROOT / "serving/flowmesh_serving").rglob("*.py")
    codes = {code for path in sources for code in re.findall(r'code="(\w+)"', path.read_text())}
    page = (ROOT / "docs/serving.md").read_text()
    assert len(codes) > 20
    assert {code for code in codes if f"`{code}`" not in page} == set()


def test_every_rule_of_the_security_page_names_its_test() -> None:
    rows = [
        line for line in (ROOT / "docs/security.md").read_text().splitlines() if line[:2] == "| "
    ]
    rules = [row for row in rows if not row.startswith(("| rule |", "| --- |"))]
    assert len(rules) > 40
    assert [row for row in rules if not re.search(r"`(tests|e2e)/[\w/]+\.py`", row)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_on_a_page_exists(page: Path) -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(COMMAND.findall(page.read_text())) <= known


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "docs/engines.md",
        ROOT / "sim/flowmesh_sim/run/plots.py",
    ],
    ids=lambda p: f"{p.parent.name}/{p.name}",
)
def test_a_page_with_a_uv_command_also_shows_the_pip_command(page: Path) -> None:
    text = page.read_text()
    assert "uv pip install" in text
    assert re.search(r"(?<!uv )pip install", text)


def test_troubleshooting_names_kinds_of_failure_that_exist() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    named = re.findall(r"^\| `([a-z][a-z-]*)` \| (?!meaning)", text, re.MULTILINE)
    kinds = {kind.value for kind in FailureKind}
    assert len(named) >= 10
    assert [n for n in named if n not in kinds] == []


@pytest.mark.parametrize("page", [SKILL, LLMS], ids=lambda p: p.name)
def test_a_page_for_assistants_names_commands_with_options_that_they_have(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    calls = [call.split() for call in CALL.findall(page.read_text())]
    assert {"validate", "plan", "run", "outputs", "why", "engines"} <= {words[0] for words in calls}
    for name, *words in calls:
        known = {o for p in commands[name].params for o in (*p.opts, *p.secondary_opts)}
        assert {w for w in words if w.startswith("-")} <= known, name
    catalog = load_catalog()
    engines = {words[1] for words in calls if words[0] == "engines" and len(words) > 1} - {"NAME"}
    assert engines <= set(catalog.names())


def test_the_skill_is_short_and_its_workflow_is_valid(tmp_path: Path) -> None:
    text = SKILL.read_text()
    assert text.startswith("---\nname: flowmesh\ndescription: ")
    assert len(text.splitlines()) < 80
    (flow,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "flow.yaml"
    file.write_text(flow)
    (source,) = checked(WorkflowSelection([file])).workflows
    assert source.plan is not None
    assert [step.path for step in source.plan.steps] == ["add"]


def test_the_exit_codes_of_the_skill_are_those_of_the_command() -> None:
    named = {
        int(code) for code in re.findall(r"(\d): ", SKILL.read_text().partition("Exit code")[2])
    }
    assert named == {c.value for c in ExitCode if 0 < c < ExitCode.CANCELLED}


def test_the_readme_says_where_the_command_is_before_it_uses_it() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.index("PATH=$PWD/.venv/bin") < text.index("\nfmesh ")

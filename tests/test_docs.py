"""The pages of ``docs/`` name only existing files, kinds of failure and commands."""

import re
from pathlib import Path

import pytest
import typer.main

from flowmesh_cli.main import app
from flowmesh_core.errors import FailureKind

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\(([^)#:]+?)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:`|^\$ )fmesh ([a-z][a-z-]*)", re.MULTILINE)
TEST = re.compile(r"`((?:tests|e2e|examples|docs)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_and_path_on_a_page_resolves(page: Path) -> None:
    text = page.read_text()
    wanted = [page.parent / link for link in LINK.findall(text)]
    wanted += [ROOT / path for path in TEST.findall(text)]
    assert [str(path) for path in wanted if not path.exists()] == []


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

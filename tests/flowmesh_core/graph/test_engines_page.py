"""What the page of engines names is accepted where the page says that it is written."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog
from tests.flowmesh_core.graph.conftest import Problems

PAGE = (Path(__file__).parents[3] / "docs" / "engines.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `([\w.-]+)`\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PARAMETER = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
NAMED = re.compile(r"`(\w+)`")
VALUES: dict[str, Any] = {"dtype": "float32", "batchInvariant": False, "tensorParallel": 2}


def named(section: str, start: str) -> list[str]:
    """The names on the line that begins so."""
    return [
        n
        for line in section.splitlines()
        if line.startswith(start)
        for n in NAMED.findall(line[len(start) :])
    ]


def parameters(section: str) -> list[str]:
    _, _, table = section.partition("| parameter | type |")
    return PARAMETER.findall(table.partition("\n\n")[0])


def test_the_page_has_a_section_for_every_engine() -> None:
    assert set(builtin_catalog().names()) <= set(SECTIONS)
    assert named(SECTIONS["llm.generate"], "Also in `with`:")
    assert "prompt" in parameters(SECTIONS["llm.generate"])


@pytest.mark.parametrize("engine", builtin_catalog().names())
def test_what_the_page_names_in_a_place_is_accepted_there(problems: Problems, engine: str) -> None:
    section = SECTIONS[engine]
    known = [*parameters(section), *named(section, "Also in `with`:")]
    under = named(section, "Under `resources`:")
    step = {
        "uses": engine,
        "with": {name: VALUES.get(name) for name in known},
        "resources": {name: VALUES[name] for name in under},
    }
    refused = ("has no parameter", "is written under", "runs on one device")
    found = problems(step)
    assert {k: v for k, v in found.items() if any(r in v for r in refused)} == {}

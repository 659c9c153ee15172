"""Writes the tables between the markers of ``docs/evaluation.md``; the rest is written by hand."""

import re
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.goals import goals
from flowmesh_sim.paper.numbers import Missing, Results
from flowmesh_sim.paper.plan import Json
from flowmesh_sim.paper.plots import FIGURES
from flowmesh_sim.paper.tables import TABLES


def fill(text: str, name: str, content: str) -> str:
    """Returns the page with new content between the markers of a name.

    Raises:
        FlowMeshError: the page has no markers of this name.
    """
    pattern = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise FlowMeshError(f"no markers for {name}", where="docs/evaluation.md")
    return pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text, count=1)


def write(page: Path, results: Results, plan: Json) -> list[str]:
    """Updates tables and pictures; returns the names of those with missing simulations.

    Args:
        page: the Markdown file; pictures go to the folder ``pictures`` beside it.
        results: of the simulations.
        plan: for titles.
    """
    pictures = page.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    text, left = page.read_text(), []
    for name, render in TABLES.items():
        try:
            content = render(results, plan)
            if name in FIGURES:
                FIGURES[name](results, plan, pictures / f"evaluation-{name}.png")
        except Missing:
            left.append(name)
            continue
        seeds = results.seeds(name)
        text = fill(text, name, f"{content}\n\n{seeds} seed{'s' * (seeds != 1)}.")
    page.write_text(fill(text, "goals", goals(results, text)))
    return left

"""Compares what ``fmesh plan`` predicts with what runs take and cost, for ten of the examples.

For each example: a new state folder, a plan, the run; then the same workflow with other rows, so
that nothing but the import of the model is a hit, planned and run on the same folder. A range holds
where the run's dollars and seconds are both in it; one without an upper end never does. Goal: held
in nine of ten, the upper end at most eight times the lower on a new folder, and at most twice after
one run. Run it with ``make bench-plan-range``; ``ARGS="--folder DIR --only NAME,NAME"``
keeps the state folders, and runs some.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results import ROOT, Result, Table
from ruamel.yaml import YAML

EXAMPLES = (
    "best-of-four",
    "temperatures",
    "agent",
    "inference/retrieval-augmented",
    "inference/plan-tool-summarise",
    "inference/reasoning-chain",
    "inference/self-consistency",
    "inference/debate",
    "post-training/sft-lora",
    "post-training/learning-rates",
)
NEW_FOLDER, ONE_RUN = 8.0, 2.0
"""The largest ratio of a range's ends that the goal allows."""
NANO = 1e9
_ROUNDING = 1.001


@dataclass(frozen=True, slots=True)
class Range:
    """Ends of a prediction, and what came; ``high`` is 0 where the plan has no upper end."""

    low: float
    high: float
    came: float

    def is_held(self, widest: float) -> bool:
        """Whether it has what came, and its upper end is at most so many times the lower."""
        return self.low <= self.came <= self.high <= self.low * widest * _ROUNDING

    @property
    def width(self) -> float:
        """The upper end over the lower."""
        return self.high / self.low if self.high and self.low else 0.0

    def shown(self, digits: int) -> str:
        """Returns the ends and what came, as the tables show them."""
        high = f"{self.high:.{digits}f}" if self.high else "?"
        return f"{self.low:.{digits}f} to {high}: {self.came:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A plan beside the run that came after it."""

    example: str
    dollars: Range
    seconds: Range

    def is_held(self, widest: float) -> bool:
        """Whether both ranges hold and are no wider than the goal."""
        return self.dollars.is_held(widest) and self.seconds.is_held(widest)


def main() -> None:
    """Plans, runs, compares, prints and saves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the state folders here")
    parser.add_argument(
        "--only", type=chosen, metavar="NAME,NAME", help="some examples: inference/debate or debate"
    )
    given = parser.parse_args()
    names = given.only or EXAMPLES
    result = Result("plan-range")
    with tempfile.TemporaryDirectory(prefix="fmesh-plan-range-") as folder:
        pairs = [compare(name, given.folder or Path(folder)) for name in names]
    fresh, again = [a for a, _ in pairs], [b for _, b in pairs]
    result.tables = [
        table("A new state folder", fresh, NEW_FOLDER),
        table("After one run, with other rows", again, ONE_RUN),
    ]
    result.figures = {"fresh": [asdict(c) for c in fresh], "again": [asdict(c) for c in again]}
    result.save(keep=not given.only)


def chosen(text: str) -> list[str]:
    """Returns the examples that a text names, with their folders or without, in their order.

    Raises:
        argparse.ArgumentTypeError: there is none of a name.
    """
    asked = text.split(",")
    known = {name for example in EXAMPLES for name in (example, Path(example).name)}
    if unknown := [name for name in asked if name not in known]:
        raise argparse.ArgumentTypeError(
            f"no example {unknown[0]!r}; there are {', '.join(EXAMPLES)}"
        )
    return [n for n in EXAMPLES if n in asked or Path(n).name in asked]


def compare(name: str, folder: Path) -> tuple[Comparison, Comparison]:
    """Plans and runs an example on a new state folder, and then with other rows."""
    here = folder / Path(name).name
    here.mkdir(parents=True)
    first = ROOT / "examples" / f"{name}.yaml"
    second = with_other_rows(first, here)
    return measured(name, first, here / "state"), measured(name, second, here / "state")


def measured(name: str, workflow: Path, state: Path) -> Comparison:
    """Plans a workflow, runs it, and compares."""
    [plan] = fmesh("plan", "--json", "--state-dir", state, workflow)
    [run] = fmesh("run", "--json", "--state-dir", state, workflow)["runs"]
    kept = state.with_name(f"{workflow.stem}.json")
    kept.write_text(json.dumps({"plan": plan, "run": run}))
    print(f"{name} has run", file=sys.stderr, flush=True)
    paid, took = run["paid_nanousd"] / NANO, run["ended_s"] - run["created_s"]
    dollars = Range(plan["low_nanousd"] / NANO, plan["high_nanousd"] / NANO, paid)
    return Comparison(name, dollars, Range(plan["low_seconds"], plan["high_seconds"], took))


def with_other_rows(workflow: Path, folder: Path) -> Path:
    """Writes a copy of a workflow, and of its files of rows, with as many rows of other texts."""
    yaml = YAML()
    document = yaml.load(workflow.read_text())
    for name, given in document["spec"]["inputs"].items():
        if "rows" in given:
            given["rows"] = [other(row) for row in given["rows"]]
        elif str(given.get("dataset", "")).startswith("."):
            rows = map(json.loads, (workflow.parent / given["dataset"]).read_text().splitlines())
            target = folder / f"{name}.jsonl"
            target.write_text("".join(json.dumps(other(row)) + "\n" for row in rows))
            given["dataset"] = f"./{target.name}"
    copy = folder / "other-rows.yaml"
    with copy.open("w") as file:
        yaml.dump(document, file)
    return copy


def other(value: Any) -> Any:
    """Returns a value with other digits, or another last word, of about the same length."""
    if isinstance(value, str):
        changed = value.translate(_NEXT_DIGIT)
        return changed if changed != value else f"{value} too"
    if isinstance(value, dict):
        return {key: other(item) for key, item in value.items()}
    return [other(item) for item in value] if isinstance(value, list) else value


_NEXT_DIGIT = str.maketrans("123456789", "234567891")


def fmesh(*arguments: Any) -> Any:
    """Runs a command; returns its answer."""
    command = [sys.executable, "-m", "flowmesh_cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command[2:])}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def table(title: str, found: Sequence[Comparison], widest: float) -> Table:
    """Returns the rows of one plan of each example, and how many are held."""
    count = sum(c.is_held(widest) for c in found)
    rows = [
        [
            f"`{Path(c.example).name}`",
            c.dollars.shown(5),
            c.seconds.shown(0),
            f"{max(c.dollars.width, c.seconds.width):.1f}",
            held(c, widest),
        ]
        for c in found
    ]
    need = max(1, round(0.9 * len(found)))
    verdict = "reached" if count >= need else "missed"
    notes = [
        f"Held in {count} of {len(found)}; goal: {need}, with an upper end of at most "
        f"{widest:.0f} times the lower: {verdict}."
    ]
    columns = ["example", "dollars: paid", "seconds: took", "upper end over lower", "held"]
    return Table(title, columns, rows, notes)


def held(c: Comparison, widest: float) -> str:
    """Returns whether a plan holds its run, or what is outside."""
    ranges = {"dollars": c.dollars, "seconds": c.seconds}
    outside = [name for name, r in ranges.items() if not r.is_held(widest)]
    return " and ".join(outside) + " outside" if outside else "yes"


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()

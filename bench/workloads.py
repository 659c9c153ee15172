"""Runs every example twice in a new state folder and prints a table of measurements.

``make bench-workloads``: ``fmesh run`` runs each file in its own state folder, so that the first
run begins with the import of the model and the second finds all results published. ``ARGS`` selects
files in place of all examples, such as ``ARGS=examples/inference/debate.yaml``; ``--training`` adds
the workflows of ``make demo-training``. The table is that of ``docs/workloads.md``.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = ("inference/*.yaml", "post-training/*.yaml", "*.yaml")
NO_RUN = frozenset({"cache-policy.yaml", "http.yaml"})
"""A policy is not a workflow; http.yaml needs a server that the reader names."""
TRAINING = [
    ROOT / "examples" / name
    for name in (
        "demo-training/sharing.yaml",
        "post-training/rlaif.yaml",
        "post-training/rlhf.yaml",
    )
]
NANO = 1e9


@dataclass(frozen=True, slots=True)
class Pass:
    """One ``fmesh run``: wall and CPU seconds, and its runs from the JSON output."""

    wall_s: float
    cpu_s: float
    runs: list[dict[str, Any]]

    def total(self, name: str) -> float:
        """Returns the sum of a value over the runs."""
        return float(sum(run[name] for run in self.runs))

    @property
    def tokens(self) -> int:
        """Computed tokens, with prompts."""
        return sum(step["tokens"] for run in self.runs for step in run["steps"])

    def metrics(self) -> dict[str, Any]:
        """Returns the metrics among the outputs, by run and name."""
        return {
            f"{run['name']}.{name}": output["value"]
            for run in self.runs
            for name, output in run["outputs"].items()
            if output and output.get("value")
        }


def main() -> None:
    """Prints each row when it is measured, and the metrics to standard error."""
    given = _arguments()
    jobs = [[file] for file in given.files or _examples()]
    if given.training:
        jobs.append(TRAINING)
    print("| workload | tokens | ran / hits | time | processor | paid | energy | again | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    failed = 0
    for files in jobs:
        name = " and ".join(f.stem for f in files)
        try:
            with tempfile.TemporaryDirectory(prefix="fmesh-workload-") as state:
                first, again = _run(files, state), _run(files, state)
        except subprocess.CalledProcessError as e:
            failed += 1
            print(f"{name}: exit code {e.returncode}\n{e.stderr[-3000:]}", file=sys.stderr)
            continue
        print(_row(name, first, again), flush=True)
        print(f"{name}: {json.dumps(first.metrics())}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="workflows; all examples by default")
    parser.add_argument(
        "--training", action="store_true", help="run the training demonstration too"
    )
    return parser.parse_args()


def _examples() -> list[Path]:
    found = [f for pattern in EXAMPLES for f in sorted((ROOT / "examples").glob(pattern))]
    return [f for f in found if f.name not in NO_RUN]


def _run(files: Sequence[Path], state: str) -> Pass:
    before, started = _processor_s(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "flowmesh_cli.main", "run", "--json", "--state-dir", state]
        + [str(file) for file in files],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    wall_s = time.monotonic() - started
    return Pass(wall_s, _processor_s() - before, json.loads(done.stdout)["runs"])


def _processor_s() -> float:
    """Returns the CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(name: str, first: Pass, again: Pass) -> str:
    about = "~" if any(run["joules_estimated"] for run in first.runs) else ""
    cells = [
        f"`{name}`",
        f"{first.tokens:,}",
        f"{first.total('executed'):.0f} / {first.total('hits'):.0f}",
        _time(first.wall_s),
        _time(first.cpu_s),
        f"${first.total('paid_nanousd') / NANO:.4f}",
        f"{about}{first.total('joules'):,.0f} J",
        f"{again.total('hits'):.0f} hits, {_time(again.wall_s)}",
        f"{os.getloadavg()[0]:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


if __name__ == "__main__":
    main()

"""Measures the simulator's error: fits it to some real runs of this machine and predicts others.

``make bench-calibration``: ``fmesh run`` runs groups of small workflows (queries, user code; with
``--models`` also generation by a small model), each in a new state folder, one group at a time. The
cost model and the start time of workers are learned from some groups. For the others, which run in
between, the simulator gets only the plan and the sizes of the work and predicts how long each group
takes and what its runs pay. Prints a row per group and the mean errors.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from flowmesh_sim.replay.recorded_pace import RecordedDurations
from flowmesh_sim.replay.recorded_work import RecordedWork
from flowmesh_sim.replay.recording import Recording, read_recording
from flowmesh_sim.replay.replay import ReplaySpec, recorded_pools, replay

ROOT = Path(__file__).parents[1]
CODE = """
def main(rows):
    for row in rows:
        n = row["n"]
        for _ in range(20000):
            n = (n * 1103515245 + 12345) % 2147483648
        row["n"] = n
    return rows
"""
QUERY = """
select a.n % 97 as k, count(*) as c, sum((a.n + b.n) % 1000) as s
from rows a, rows b where a.n <= b.n group by k order by k
"""
PROMPT = "{{ n }} and {{ n }} make"
ROWS = (100, 200, 400, 800)


@dataclass(frozen=True, slots=True)
class Group:
    """Workflows that were run together.

    Attributes:
        load: the load average at the end.
    """

    recording: Recording
    load: float


def main() -> None:
    """Runs, fits, predicts and prints."""
    given = _arguments()
    fit: list[Group] = []
    test: list[Group] = []
    with tempfile.TemporaryDirectory(prefix="fmesh-calibration-") as folder:
        for n in range(given.fit + given.test):
            group = _run(Path(folder), n, given.workflows, models=given.models)
            # Alternating, so that other load on the machine affects both alike.
            learns = len(test) == given.test or (n % 2 == 0 and len(fit) < given.fit)
            (fit if learns else test).append(group)
            print(f"group {n} has run", file=sys.stderr, flush=True)
    errors = _compare(fit, test)
    print(f"mean error: makespan {errors[0]:.0%}, cost {errors[1]:.0%}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", type=int, default=4, help="groups to learn from")
    parser.add_argument("--test", type=int, default=4, help="groups to predict")
    parser.add_argument("--workflows", type=int, default=4, help="workflows per group")
    parser.add_argument("--models", action="store_true", help="generate with a small model, too")
    return parser.parse_args()


def _run(folder: Path, number: int, workflows: int, *, models: bool) -> Group:
    rng = random.Random(f"calibration {number}")
    here = folder / str(number)
    here.mkdir()
    files = [_write(here, rng, n, models=models) for n in range(workflows)]
    _fmesh("run", "--json", "--state-dir", here / "state", *files)
    trace = here / "trace.jsonl"
    _fmesh("trace", "--all", "-o", trace, "--state-dir", here / "state")
    return Group(read_recording(trace), os.getloadavg()[0])


def _write(here: Path, rng: random.Random, number: int, *, models: bool) -> Path:
    count = rng.choice(ROWS)
    rows = here / f"rows-{number}.jsonl"
    drawn = ({"n": rng.randrange(10**6), "target": "7"} for _ in range(count))
    rows.write_text("".join(json.dumps(row) + "\n" for row in drawn))
    inputs: dict[str, Any] = {"rows": {"dataset": f"./{rows.name}"}}
    steps = [_step("work", "code.python", "inputs.rows", code=CODE)]
    steps.append(_step("join", "data.sql", "work.rows", query=QUERY))
    if number % 2:
        other = CODE.replace("12345", "54321")
        steps.append(_step("more", "code.python", "inputs.rows", code=other))
    if models:
        inputs["base"] = {"model": "smollm2-135m-instruct"}
        few = "select n from rows order by n limit 8"
        steps.append(_step("few", "data.sql", "inputs.rows", query=few))
        generate = _step(
            "say", "llm.generate", "few.rows", prompt=PROMPT, maxTokens=rng.choice((16, 32, 64))
        )
        generate["inputs"]["model"] = "inputs.base"
        generate["with"]["dtype"] = "float32"
        steps.append(generate)
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": f"w{number}", "namespace": "team-a"},
        "spec": {"inputs": inputs, "steps": steps},
    }
    path = here / f"w{number}.yaml"
    path.write_text(json.dumps(document))
    return path


def _step(name: str, uses: str, rows: str, **given: Any) -> dict[str, Any]:
    return {"name": name, "uses": uses, "inputs": {"rows": rows}, "with": given}


def _fmesh(*arguments: Any) -> None:
    command = [sys.executable, "-m", "flowmesh_cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command[2:4])}: exit code {done.returncode}\n{done.stderr[-3000:]}")


def _compare(fit: Sequence[Group], test: Sequence[Group]) -> tuple[float, float]:
    """Prints a row per tested group; returns the mean errors of makespan and cost."""
    learned = [RecordedWork(g.recording) for g in fit]
    paces = RecordedDurations(e for w in learned for e in w.engines.values())
    for (
        work
    ) in learned:  # the times of each group start at 0: they are learned one group after another
        paces.train(work.attempts())
    pools = [recorded_pools(work) for work in learned]
    boot_s = median(pool.after_s for (pool, *_) in pools)
    spec = ReplaySpec(pools=(pools[0][0].model_copy(update={"after_s": boot_s}),))
    print("| group | runs | makespan | predicted | off | receipts | predicted | off | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for n, group in enumerate(test, 1):
        done = replay(group.recording, spec, paces=paces)
        was, now = done.recorded, done.replayed
        time_off = now.makespan_s / was.makespan_s - 1.0
        cost_off = now.receipts_usd / was.receipts_usd - 1.0
        errors.append((abs(time_off), abs(cost_off)))
        print(
            f"| {n} | {was.runs} | {was.makespan_s:.1f} s | {now.makespan_s:.1f} s | "
            f"{time_off:+.0%} | ${was.receipts_usd:.6f} | ${now.receipts_usd:.6f} | "
            f"{cost_off:+.0%} | {group.load:.1f} |"
        )
    return fmean(e[0] for e in errors), fmean(e[1] for e in errors)


if __name__ == "__main__":
    main()

"""The command of ``make paper-serving``: replays and measures, and writes the page."""

import argparse
import os
import secrets
import sys
from pathlib import Path
from typing import NoReturn

from flowmesh_sim.paper.page import fill
from flowmesh_sim.paper.serving.goals import (
    BEYOND,
    PEAK,
    ReplayGoal,
    advantage,
    fidelity,
    twin_goals,
)
from flowmesh_sim.paper.serving.neustream_replay import (
    LARGE,
    SMALL,
    SWEEPS,
    published_points,
    simulate_all,
)
from flowmesh_sim.paper.serving.tables import goals, sweep, twin
from flowmesh_sim.paper.serving.twin_runs import run_twin, twin_points

PAGE = Path("docs/evaluation-serving.md")
FRESH = 100
"""The spread between seeds is 2.2 points, so that a mean of 20 would be uncertain by 1 point."""


def main() -> None:
    """Runs the command; exits with 1 where a goal is not reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    parser.add_argument("--seed", type=int, default=None, help="first of the fresh seeds")
    parser.add_argument("--no-twin", action="store_true", help="leave out the real batches")
    parser.add_argument(
        "--only-twin", action="store_true", help="the real batches alone; the goals stay"
    )
    parser.add_argument(
        "--rates", type=float, nargs="*", help="real batches at these rates alone; writes nothing"
    )
    options = parser.parse_args()
    known = sorted({p.rate for p in twin_points()})
    if unknown := sorted(set(options.rates or ()) - set(known)):
        parser.error(f"no rate {unknown[0]:g}; there are {', '.join(f'{r:g}' for r in known)}")
    if options.rates:
        points = [p for p in twin_points() if p.rate in options.rates]
        _print_line(twin(run_twin(points, _print_line)))
        return
    if options.only_twin:
        run = run_twin(twin_points(), _print_line)
        options.page.write_text(fill(options.page.read_text(), "twin", twin(run)))
        _finish(twin_goals(run.counts), options.page)
    first = secrets.randbelow(2**31 - FRESH) if options.seed is None else options.seed
    found, text = _replayed(options.page.read_text(), first, options.jobs)
    if not options.no_twin:
        run = run_twin(twin_points(), _print_line)
        found += twin_goals(run.counts)
        text = fill(text, "twin", twin(run))
    options.page.write_text(fill(text, "goals", goals(found)))
    _finish(found, options.page)


def _finish(found: list[ReplayGoal], page: Path) -> NoReturn:
    """Prints what was not reached, and exits."""
    _print_line(f"wrote {page}")
    missed = [goal for goal in found if not goal.met]
    for goal in missed:
        print(f"not reached: {goal.name}: {goal.reached}, {goal.goal}", file=sys.stderr)  # noqa: T201
    sys.exit(bool(missed))


def _replayed(text: str, first: int, jobs: int) -> tuple[list[ReplayGoal], str]:
    """Simulates all points and the fresh seeds; returns the goals and the page with its tables."""
    points = [*published_points(), BEYOND]
    seeds = range(first, first + FRESH)
    _print_line(
        f"{len(points)} points, and {PEAK.rate:g} requests/s at the seeds {first} to {seeds[-1]}"
    )
    counts = simulate_all([*((p, 0) for p in points), *((PEAK, s) for s in seeds)], jobs)
    replay = {p: counts[p, 0] for p in points}
    for model in (SMALL, LARGE):
        for axis in SWEEPS:
            text = fill(text, f"{model} {axis}", sweep(replay, model, axis))
    fresh = [counts[PEAK, s] for s in seeds]
    text = fill(text, "seeds", f"The fresh seeds of this edition are {first} to {seeds[-1]}.")
    return fidelity(replay) + advantage(replay, fresh), text


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()

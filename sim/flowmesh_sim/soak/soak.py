"""Simulates random scenarios on all cores: ``python -m flowmesh_sim.soak``, or ``make soak``.

``--seeds a-b`` simulates one scenario for each seed with all invariants checked and prints the
seeds that violate one; seeds that this code has passed are skipped. ``--replay N`` simulates one
seed with its traceback, ``--shrink N`` prints a small scenario that violates the same invariant.
``--calls`` uses small worlds of services with calls in place of all others.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.soak.call_scenarios import call_document, call_scenario
from flowmesh_sim.soak.checked_world import WorldOutcome, run_checked_calls, run_checked_world
from flowmesh_sim.soak.passed_seeds import PassedSeeds
from flowmesh_sim.soak.random_scenarios import random_document, random_scenario
from flowmesh_sim.soak.shrink import as_yaml, shrunk

CACHE = Path(".cache/soak")
PROGRESS_EVERY_S = 20.0


def seeds_of(text: str) -> list[int]:
    """Parses ``1000`` (the first thousand seeds) or ``a-b`` (from a to b, inclusive).

    Raises:
        argparse.ArgumentTypeError: the text is neither, or names no seed.
    """
    first, dash, last = text.partition("-")
    if not (first.isdigit() and (last.isdigit() or not dash)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of seeds nor a-b")
    seeds = [*range(int(first), int(last) + 1)] if dash else [*range(int(first))]
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} names no seed: the first 100 are 100 or 0-99")
    return seeds


def soak(
    seeds: list[int],
    *,
    jobs: int,
    within_s: float = 0.0,
    simulate: Callable[[int], WorldOutcome] = run_checked_world,
) -> Iterator[WorldOutcome]:
    """Simulates the scenarios of seeds; yields their outcomes as they end.

    Args:
        seeds: the seeds.
        simulate: simulates the world of a seed.
        jobs: the number of processes; 1 uses this process.
        within_s: no simulation is started after this many seconds; 0 for no limit.
    """
    until_s = time.monotonic() + within_s if within_s else float("inf")
    left = iter(seeds)
    if jobs == 1:
        for seed in left:
            if time.monotonic() > until_s:
                return
            yield simulate(seed)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        going: set[Future[WorldOutcome]] = set()
        while True:
            while len(going) < 2 * jobs and time.monotonic() < until_s:
                another = next(left, None)
                if another is None:
                    break
                going.add(pool.submit(simulate, another))
            if not going:
                return
            done, going = wait(going, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, default="0-199", help="number of seeds, or a-b")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--within-s", type=float, default=0.0, help="time limit; 0 for none")
    parser.add_argument("--calls", action="store_true", help="worlds of services with calls")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument("--fresh", action="store_true", help="repeat seeds that passed already")
    parser.add_argument("--replay", type=int, default=None, help="simulate one seed")
    parser.add_argument("--shrink", type=int, default=None, help="shrink the scenario of a seed")
    return parser.parse_args()


def main() -> None:
    """Runs the command; exits with 1 if a seed violates an invariant."""
    options = _arguments()
    if options.replay is not None:
        scenario = (call_scenario if options.calls else random_scenario)(options.replay)
        Simulation(scenario, checker=Checker(every=1)).run()
        _print(f"seed {options.replay} breaks nothing")
    elif options.shrink is not None:
        _shrink(options.shrink, options.within_s or 600.0, calls=options.calls)
    else:
        _soak(options)


def _shrink(seed: int, within_s: float, *, calls: bool) -> None:
    def report(what: str) -> None:
        print(f"# {what}", file=sys.stderr, flush=True)  # noqa: T201 - progress

    document = (call_document if calls else random_document)(seed)
    try:
        smallest = shrunk(document, within_s=within_s, told=report)
    except ValueError as e:
        sys.exit(f"seed {seed}: {e}")
    _print(as_yaml(smallest))


def _soak(options: argparse.Namespace) -> None:
    began, printed = time.perf_counter(), time.perf_counter()
    passed = PassedSeeds(CACHE / "calls" if options.calls else CACHE)
    simulate = run_checked_calls if options.calls else run_checked_world
    known = set() if options.fresh else passed.seeds()
    seeds = [s for s in options.seeds if s not in known]
    bad: list[int] = []
    totals = {"runs": 0, "faults": 0, "events": 0}
    count = 0
    for outcome in soak(seeds, jobs=options.jobs, within_s=options.within_s, simulate=simulate):
        count += 1
        for name in totals:
            totals[name] += getattr(outcome, name)
        if outcome.broken:
            bad.append(outcome.seed)
            _print(f"seed {outcome.seed}: {outcome.broken}")
            if options.first:
                break
        else:
            passed.add(outcome.seed)
        if time.perf_counter() - printed > PROGRESS_EVERY_S:
            printed = time.perf_counter()
            _print(f"{count} of {len(seeds)} seeds after {printed - began:.0f} s")
    figures = ", ".join(f"{n} {name}" for name, n in totals.items())
    skipped = len(options.seeds) - len(seeds)
    before = f" ({skipped} had passed before)" if skipped else ""
    took_s = time.perf_counter() - began
    _print(f"{count} seeds{before}, {figures} in {took_s:.1f} s; {len(bad)} broken: {sorted(bad)}")
    if bad:
        _print(f"repeat one: --replay {min(bad)}; shrink it: --shrink {min(bad)}")
        sys.exit(1)


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command's output

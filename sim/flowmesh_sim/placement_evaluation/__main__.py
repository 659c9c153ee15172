"""The command of ``make placement-evidence``: runs missing simulations, shows or writes tables."""

import argparse
import os
import sys
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.page import fill
from flowmesh_sim.placement_evaluation.loads import draw, scheduler_commit
from flowmesh_sim.placement_evaluation.measure import measure
from flowmesh_sim.placement_evaluation.plan import (
    figure_5_cells,
    order_cells,
    reference_cells,
    scaling_cells,
)
from flowmesh_sim.placement_evaluation.reference_set import reference_set, small_set
from flowmesh_sim.placement_evaluation.results import PlacementResults
from flowmesh_sim.placement_evaluation.tables import render
from flowmesh_sim.placement_evaluation.verdicts import summary
from flowmesh_sim.placement_evaluation.whole_set import simulate_whole_set

PAGE = Path("docs/evaluation-placement.md")
NAMES = ("reference", "orders", "scaling", "figure-5")


def main() -> None:
    """Runs the command; exits with 1 if a simulation fails."""
    options = _options()
    try:
        _run(options)
    except FlowMeshError as e:
        print(f"make placement-evidence: {e}", file=sys.stderr)  # noqa: T201 - a command's output
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--loads", nargs="*", default=[], help="names; else the first, with --all all"
    )
    parser.add_argument("--only", nargs="*", default=["reference"], choices=NAMES)
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds; 0 for all")
    parser.add_argument("--members", choices=("none", "small", "all"), default="small")
    parser.add_argument("--all", action="store_true", help="with all members, scaling and Figure 5")
    parser.add_argument(
        "--final", action="store_true", help="use the loads and seeds that are held back"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--cache", type=Path, default=Path(".cache/placement"))
    parser.add_argument("--no-run", action="store_true", help="only show existing results")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--scheduler", default="", help="draw for this commit of the scheduler")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    if options.write and not options.final:
        raise FlowMeshError(f"--write needs --final: {PAGE} shows evaluation seeds alone")
    drawn = draw(options.scheduler or scheduler_commit(Path.cwd()))
    judged = list(drawn.loads) if options.final else drawn.seen()
    seeds = drawn.evaluation_seeds if options.final else drawn.seen_seeds
    seeds = seeds[: options.seeds or None]
    known = [load.name for load in judged]
    unknown = sorted(set(options.loads) - set(known))
    if unknown:
        raise FlowMeshError(f"no load {unknown[0]!r}; there are {', '.join(known)}")
    asked = [x for x in judged if x.name in options.loads]
    some = asked or judged[:1]
    members = {"none": lambda _: (), "small": small_set, "all": reference_set}
    parts = {
        "reference": list(reference_cells(some, members[options.members], seeds)),
        "orders": list(order_cells(some if options.loads else judged, seeds)),
        "scaling": list(scaling_cells(seeds)),
        "figure-5": list(figure_5_cells(seeds)),
    }
    others = [*order_cells(judged, seeds), *parts["scaling"], *parts["figure-5"]]
    whole = [*reference_cells(judged, reference_set, seeds), *others]
    wanted = others if options.all else [cell for name in options.only for cell in parts[name]]
    campaign = Campaign(options.cache, measure)
    if not options.no_run:
        if options.all:
            simulate_whole_set(campaign, asked or judged, seeds, processes=options.jobs)
        campaign.run(wanted, processes=options.jobs)
    results = PlacementResults(campaign, judged, whole, parts["reference"])
    tables = render(results, drawn)
    tables["draw"] = (
        f"Drawn from the scheduler's commit {drawn.scheduler[:12]}; "
        f"{'evaluation' if options.final else 'seen'} seeds {', '.join(map(str, seeds))}. "
        f"{summary(results)}."
    )
    _show(tables, write=options.write)
    print(summary(results))  # noqa: T201 - a command's output
    if results.simulated_loads():
        value = results.value_usd_per_s()
        print(f"both terms of the shipped policy are equal at {value:.6f} $/s")  # noqa: T201 - as above


def _show(tables: dict[str, str], *, write: bool) -> None:
    if not write:
        for name, content in tables.items():
            print(f"## {name}\n\n{content}\n")  # noqa: T201 - a command's output
        return
    text = PAGE.read_text()
    for name, content in tables.items():
        text = fill(text, name, content)
    PAGE.write_text(text)
    print(f"wrote {PAGE}")  # noqa: T201 - as above


if __name__ == "__main__":
    main()

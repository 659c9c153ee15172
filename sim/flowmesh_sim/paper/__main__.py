"""The command of ``make paper``: runs missing simulations, writes the page and its pictures."""

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.numbers import Results
from flowmesh_sim.paper.page import write
from flowmesh_sim.paper.plan import cells, read_plan

PAGE = Path("docs/evaluation.md")


def main() -> None:
    """Runs the command; exits with 1 if a simulation fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds; 0 for all")
    parser.add_argument("--only", nargs="*", default=[], help="experiments, such as fig5 table3")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    parser.add_argument("--cache", type=Path, default=Path(".cache/paper"))
    parser.add_argument("--no-run", action="store_true", help="only write existing results")
    options = parser.parse_args()
    plan = read_plan()
    found = list(cells(plan))
    known = sorted({cell.experiment for cell in found})
    unknown = sorted(set(options.only) - set(known))
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}; there are {', '.join(known)}")
    if options.seeds:
        found = [replace(cell, seeds=cell.seeds[: options.seeds]) for cell in found]
    wanted = [cell for cell in found if not options.only or cell.experiment in options.only]
    campaign = Campaign(options.cache)
    try:
        if not options.no_run:
            campaign.run(wanted, processes=options.jobs)
        if not options.page.exists():
            shutil.copy(PAGE, options.page)
        left = write(options.page, Results(campaign, found), plan)
    except FlowMeshError as e:
        print(f"make paper: {e}", file=sys.stderr)  # noqa: T201 - a command's output
        sys.exit(1)
    if left:
        print(f"not simulated, so not changed: {', '.join(left)}", file=sys.stderr)  # noqa: T201
    print(f"wrote {options.page}")  # noqa: T201 - as above


if __name__ == "__main__":
    main()

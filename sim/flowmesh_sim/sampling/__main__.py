"""The command of ``make sampling``; exits with 1 where the liar is found too seldom."""

import argparse
import sys

from flowmesh_sim.sampling.figure import figure_of

FOUND_MIN = 0.97


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="number of worlds")
    options = parser.parse_args()
    figure = figure_of(range(options.seeds))
    print(figure)  # noqa: T201 - a command's output
    if figure.found < FOUND_MIN * figure.worlds or figure.left or figure.accused:
        print("the bound is not met", file=sys.stderr)  # noqa: T201 - as above
        sys.exit(1)


if __name__ == "__main__":
    main()

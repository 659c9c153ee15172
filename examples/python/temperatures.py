"""Tries several temperatures, and prints accuracy and cost of each; a second run costs nothing."""

from pathlib import Path

import flowmesh_sdk as fm

WORKFLOW = Path(__file__).parent.parent / "temperatures.yaml"


def main() -> None:
    """Runs the workflow of the sweep on the fabric of this folder."""
    run = fm.load(WORKFLOW).run(progress=True)
    for name, output in run.result().items():
        print(name, output.head(3) if isinstance(output, fm.Rows) else output)
    receipt = run.receipt()
    print(f"paid ${receipt.paid_usd:f}, saved ${receipt.saved_usd:f}")


if __name__ == "__main__":
    main()

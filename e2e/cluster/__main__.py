"""``python -m e2e.cluster up|down``: the cluster by hand."""

import sys

from e2e.cluster.running import ClusterError, down, up
from e2e.cluster.tools import ToolsError


def main(words: list[str]) -> int:
    """Does one command; returns the exit code."""
    if words not in (["up"], ["down"]):
        sys.stderr.write("usage: python -m e2e.cluster up|down\n")
        return 2
    try:
        if words == ["down"]:
            down()
            return 0
        kubeconfig = up()
    except (ClusterError, ToolsError) as e:
        sys.stderr.write(f"error: {e}\n")
        return 1
    sys.stdout.write(f"export KUBECONFIG={kubeconfig}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

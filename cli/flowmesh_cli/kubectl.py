"""``kubectl fmesh``: the same commands, on the cluster of the kubeconfig's current context."""

import os

from flowmesh_cli.main import main as run


def main() -> None:
    """As ``fmesh``, with ``--cluster`` where nothing else is said."""
    os.environ.setdefault("FLOWMESH_CLUSTER", "true")
    run("kubectl fmesh")


if __name__ == "__main__":
    main()

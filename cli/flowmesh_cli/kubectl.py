"""``kubectl fmesh``: the commands of ``fmesh``, on the cluster of the current context."""

import os

from flowmesh_cli.main import main as run


def main() -> None:
    """Runs ``fmesh`` with ``--cluster`` as the default."""
    os.environ.setdefault("FLOWMESH_CLUSTER", "true")
    run("kubectl fmesh")


if __name__ == "__main__":
    main()

"""The cluster that the scenarios start where nobody names one, with the project's images in it."""

from pathlib import Path

from e2e.cluster import running
from e2e.cluster.loading import load
from e2e.harness.kube import Kube

VALUES = Path(__file__).parent / "values.yaml"


def start() -> Kube:
    """Starts the cluster with everything in it that an installation needs."""
    kube = Kube(running.up())
    load()
    return kube


def end() -> None:
    """Ends it; nothing stays."""
    running.down()

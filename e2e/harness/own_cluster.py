"""The cluster that the scenarios start if none is given, with the project's images."""

import subprocess
import sys
from pathlib import Path

from e2e.cluster.paths import KUBECONFIG
from e2e.cluster.project_images import FULL
from e2e.harness.kube import Kube

ROOT = Path(__file__).parents[2]
VALUES = Path(__file__).parent / "values.yaml"


def start() -> Kube:
    """Starts the cluster with everything that an installation needs."""
    _do("up")
    _do("load")
    return Kube(KUBECONFIG)


def load_full() -> str:
    """Loads the worker image with every engine; returns the image's name."""
    _do("load-full")
    return FULL.name


def load_keda() -> None:
    """Loads KEDA's image."""
    _do("load-keda")


def end() -> None:
    """Ends the cluster and removes everything of it."""
    _do("down")


def _do(word: str) -> None:
    """Runs a command of ``e2e.cluster`` in a separate process, whose children outlive it."""
    subprocess.run([sys.executable, "-m", "e2e.cluster", word], cwd=ROOT, check=True)

"""The cluster that the scenarios start where nobody names one, with the project's images in it."""

import subprocess
import sys
from pathlib import Path

from e2e.cluster.places import KUBECONFIG
from e2e.cluster.project_images import FULL
from e2e.harness.kube import Kube

ROOT = Path(__file__).parents[2]
VALUES = Path(__file__).parent / "values.yaml"


def start() -> Kube:
    """Starts the cluster with everything in it that an installation needs."""
    _do("up")
    _do("load")
    return Kube(KUBECONFIG)


def load_full() -> str:
    """Puts the worker image with every engine into it; returns the image's name."""
    _do("load-full")
    return FULL.name


def load_keda() -> None:
    """Puts KEDA's image into it."""
    _do("load-keda")


def end() -> None:
    """Ends it; nothing stays."""
    _do("down")


def _do(word: str) -> None:
    """A command of ``e2e.cluster`` in a process of its own: what it starts outlives it."""
    subprocess.run([sys.executable, "-m", "e2e.cluster", word], cwd=ROOT, check=True)

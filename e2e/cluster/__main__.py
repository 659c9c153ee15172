"""``python -m e2e.cluster COMMAND``: commands for the cluster."""

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from e2e.cluster.images import ImageError
from e2e.cluster.keda import keda_image
from e2e.cluster.loading import load, load_full, load_keda
from e2e.cluster.paths import BINS
from e2e.cluster.prerequisites import check_machine
from e2e.cluster.project_images import IN_CI, build_full, build_project_image
from e2e.cluster.running import ClusterError, down, up
from e2e.cluster.tools import ToolsError, build


def prepare() -> None:
    """Builds programs and images without starting anything."""
    check_machine()
    with ThreadPoolExecutor(1) as beside:  # half of an image's build is waiting for the network
        programs = beside.submit(build, BINS)
        for image in IN_CI:
            build_project_image(image)
        programs.result()


def prepare_full() -> None:
    """Builds KEDA and the worker image with every engine too."""
    prepare()
    keda_image()
    build_full()


def show() -> None:
    """Starts the cluster and prints how to reach it."""
    sys.stdout.write(f"export KUBECONFIG={up()} PATH={BINS}:$PATH\n")


def check() -> None:
    """Checks that this machine can run a cluster; raises an error if not."""
    check_machine()
    sys.stdout.write("this machine can run a cluster\n")


DOES: Mapping[str, Callable[[], None]] = {
    "check": check,
    "prepare": prepare,
    "prepare-full": prepare_full,
    "up": show,
    "load": load,
    "load-full": load_full,
    "load-keda": load_keda,
    "down": down,
}


def main(words: list[str]) -> int:
    """Runs one command; returns the exit code."""
    if len(words) != 1 or words[0] not in DOES:
        sys.stderr.write(f"usage: python -m e2e.cluster {'|'.join(DOES)}\n")
        return 2
    try:
        DOES[words[0]]()
    except (ClusterError, ImageError, ToolsError) as e:
        sys.stderr.write(f"error: {e}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

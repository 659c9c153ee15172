"""The cluster's programs: built from Go modules once.

``python -m e2e.cluster.tools`` builds those of the API server alone, which the tests of the
operator run against, and helm for those of the chart; it needs no package but Python's own.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.places import BINS

MODULES = Path(__file__).parents[1] / "tools"
BUILT = ("etcd", "containerd", "cni", "helm", "coredns", "kubernetes")
SINGLE = ("etcd", "helm")
API_PROGRAMS = ("kube-apiserver", "kubectl")
KUBERNETES_VERSION = "v1.36.3"
_STAMPED = "k8s.io/component-base/version"
SYSTEM = {
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""Programs that the machine must have, and the Debian package that brings each."""


class ToolsError(RuntimeError):
    """A program is missing or does not build."""


def check_system() -> None:
    """Says which of the machine's own programs are missing.

    Raises:
        ToolsError: with the remedy.
    """
    if os.geteuid() != 0:
        raise ToolsError("a cluster needs root (namespaces, mounts, containers): run make as root")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted({p for name, p in SYSTEM.items() if shutil.which(name, path=path) is None})
    if missing:
        raise ToolsError(
            f"missing: {', '.join(missing)}; Debian and Ubuntu: apt-get install"
            f" --no-install-recommends {' '.join(missing)}"
        )


def build(into: Path) -> None:
    """Builds what is not there yet; the Go build cache makes a second build free.

    Args:
        into: a directory for the programs.

    Raises:
        ToolsError: a module does not build.
    """
    with _alone(into):
        for module in BUILT:
            _build(module, into / f".{module}", into)


def build_api(into: Path) -> None:
    """Builds etcd, the API server and kubectl, unless they are there.

    Args:
        into: a directory for the programs.

    Raises:
        ToolsError: Go is missing, or a module does not build.
    """
    with _alone(into):
        _build("etcd", into / ".etcd", into)
        if not _built("kubernetes", into / ".kubernetes"):
            packages = [f"k8s.io/kubernetes/cmd/{name}" for name in API_PROGRAMS]
            _build("kubernetes", into / ".kubernetes-api", into, packages)


def build_helm(into: Path) -> None:
    """Builds helm, unless it is there.

    Args:
        into: a directory for the program.

    Raises:
        ToolsError: Go is missing, or the module does not build.
    """
    with _alone(into):
        _build("helm", into / ".helm", into)


def _built(module: str, done: Path) -> bool:
    return done.is_file() and done.read_bytes() == _sums(module)


def _build(module: str, done: Path, into: Path, packages: list[str] | None = None) -> None:
    if _built(module, done):
        return
    sys.stderr.write(f"building {module} (once)\n")
    # A single program is named after its module, not after the last part of its path (v3).
    output = into / module if module in SINGLE else f"{into}/"
    go = os.environ.get("GO", "go")
    command = [go, "build", "-o", str(output), "-ldflags", _flags(module), *(packages or ["tool"])]
    if shutil.which(go) is None:
        raise ToolsError(
            f"Go is needed to build {module}, and {go!r} is not there: install Go 1.26 from"
            " https://go.dev/dl/ and put its bin folder on PATH"
        )
    built = subprocess.run(
        command,
        cwd=MODULES / module,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ToolsError(f"{module} does not build:\n{built.stderr[-4000:]}")
    done.write_bytes(_sums(module))


def _sums(module: str) -> bytes:
    return (MODULES / module / "go.sum").read_bytes()


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Two that build at once would write the same programs."""
    into.mkdir(parents=True, exist_ok=True)
    with (into / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _flags(module: str) -> str:
    if module != "kubernetes":
        return "-s -w"
    stamps = {"gitVersion": KUBERNETES_VERSION, "gitMajor": "1", "gitMinor": "36"}
    return "-s -w " + " ".join(f"-X {_STAMPED}.{name}={value}" for name, value in stamps.items())


if __name__ == "__main__":
    try:
        build_api(BINS)
        build_helm(BINS)
    except ToolsError as e:
        sys.exit(f"error: {e}")

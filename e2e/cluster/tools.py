"""The cluster's programs: built from Go modules once.

``python -m e2e.cluster.tools`` builds only the API server's programs, for the operator's tests, and
helm, for the chart's; it needs only the standard library.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.paths import BINS

MODULES = Path(__file__).parents[1] / "tools"
BUILT = ("etcd", "containerd", "cni", "helm", "coredns", "kube-router", "kubernetes")
SINGLE = ("etcd", "helm")
KEDA = "github.com/kedacore/keda/v2"
KEDA_PROGRAMS = {"keda": "operator", "keda-adapter": "adapter"}
"""Programs named by their commands, whose own names are not specific enough."""
OWN = ("coredns", "external-metrics")
"""A main package in this folder, with the used parts of a program or library."""
API_PROGRAMS = ("kube-apiserver", "kubectl")
NODE_PROGRAMS = ("kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet")
KUBERNETES_VERSION = "v1.36.3"
_STAMPED = "k8s.io/component-base/version"


class ToolsError(RuntimeError):
    """A program is missing or does not build."""


def build(into: Path) -> None:
    """Builds the missing programs; with Go's build cache a second build is fast.

    Args:
        into: a directory for the programs.

    Raises:
        ToolsError: a module does not build.
    """
    with _alone(into):
        for module in BUILT:
            # Programs of :func:`build_api` need not be linked again, which takes half a minute.
            have = module == "kubernetes" and _built(module, into / ".kubernetes-api")
            _build(module, into / f".{module}", into, _commands(NODE_PROGRAMS) if have else None)


def build_api(into: Path) -> None:
    """Builds etcd, the API server and kubectl if they are missing.

    Args:
        into: a directory for the programs.

    Raises:
        ToolsError: Go is missing, or a module does not build.
    """
    with _alone(into):
        _build("etcd", into / ".etcd", into)
        if not _built("kubernetes", into / ".kubernetes"):
            _build("kubernetes", into / ".kubernetes-api", into, _commands(API_PROGRAMS))


def build_helm(into: Path) -> None:
    """Builds helm if it is missing.

    Args:
        into: a directory for the program.

    Raises:
        ToolsError: Go is missing, or the module does not build.
    """
    with _alone(into):
        _build("helm", into / ".helm", into)


def _commands(names: Sequence[str]) -> list[str]:
    return [f"k8s.io/kubernetes/cmd/{name}" for name in names]


def build_external_metrics(into: Path) -> None:
    """Builds the adapter between Prometheus and a HorizontalPodAutoscaler if it is missing.

    Args:
        into: a directory for the program.

    Raises:
        ToolsError: Go is missing, or the module does not build.
    """
    with _alone(into):
        _build("external-metrics", into / ".external-metrics", into)


def build_keda(into: Path) -> None:
    """Builds KEDA's operator and its metrics adapter if they are missing.

    Args:
        into: a directory for the programs, named as in KEDA's images.

    Raises:
        ToolsError: Go is missing, or the module does not build.
    """
    with _alone(into):
        for program, command in KEDA_PROGRAMS.items():
            _build("keda", into / f".{program}", into, [f"{KEDA}/cmd/{command}"], program)


def keda_sources() -> Path:
    """Returns the folder of KEDA's module, with its custom resources and manifests.

    Raises:
        ToolsError: Go is missing, or cannot fetch the module.
    """
    said = _go("keda", "mod", "download", "-json", KEDA)
    return Path(json.loads(said)["Dir"])


def _built(module: str, done: Path) -> bool:
    return done.is_file() and done.read_bytes() == _sums(module)


def _build(
    module: str,
    done: Path,
    into: Path,
    packages: list[str] | None = None,
    program: str | None = None,
) -> None:
    if _built(module, done):
        return
    sys.stderr.write(f"building {program or module} (once)\n")
    start = time.monotonic()
    # A single program is named after its module, not after the last part of its path (v3).
    single = program or (module if module in SINGLE else None)
    output = into / single if single else f"{into}/"
    packages = packages or ["." if module in OWN else "tool"]
    _go(module, "build", "-o", str(output), "-ldflags", _flags(module), *packages)
    done.write_bytes(_sums(module))
    sys.stderr.write(f"built {program or module}: {time.monotonic() - start:.0f} s\n")


def _go(module: str, *words: str) -> str:
    """Runs Go in a module's folder; returns what it printed."""
    go = os.environ.get("GO", "go")
    if shutil.which(go) is None:
        raise ToolsError(
            f"Go is needed for {module}, and {go!r} is not there: install Go 1.26 from"
            " https://go.dev/dl/ and put its bin folder on PATH"
        )
    done = subprocess.run(
        [go, *words],
        cwd=MODULES / module,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolsError(f"{module}: go {words[0]} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def _sums(module: str) -> bytes:
    files = (MODULES / module / "go.sum", MODULES / module / "main.go")
    return b"".join(file.read_bytes() for file in files if file.is_file())


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Locks the build: two builds at once would write the same programs."""
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

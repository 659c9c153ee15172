"""The cluster's programs: built from Go modules once, found on PATH otherwise."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULES = Path(__file__).parents[1] / "tools"
BUILT = ("etcd", "containerd", "cni", "helm", "kubernetes")
SINGLE = ("etcd", "helm")
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
    into.mkdir(parents=True, exist_ok=True)
    for module in BUILT:
        done = into / f".{module}"
        sums = (MODULES / module / "go.sum").read_bytes()
        if done.is_file() and done.read_bytes() == sums:
            continue
        sys.stderr.write(f"building {module} (once)\n")
        # A single program is named after its module, not after the last part of its path (v3).
        output = into / module if module in SINGLE else f"{into}/"
        command = ["go", "build", "-o", str(output), "-ldflags", _flags(module), "tool"]
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
        done.write_bytes(sums)


def _flags(module: str) -> str:
    if module != "kubernetes":
        return "-s -w"
    stamps = {"gitVersion": KUBERNETES_VERSION, "gitMajor": "1", "gitMinor": "36"}
    return "-s -w " + " ".join(f"-X {_STAMPED}.{name}={value}" for name, value in stamps.items())

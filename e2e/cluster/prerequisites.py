"""Checks in seconds whether this machine can run a cluster, before anything is built.

Every trial runs in its own namespaces, or is undone. Without the check, a container without
privileges, or a folder on an overlay, would be detected after half an hour of building.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.paths import BINS, CACHE, IMAGES, STOCK
from e2e.cluster.tools import ToolsError

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
RUN_GIB, STOCK_GIB, IMAGES_GIB, PROGRAMS_GIB = 3, 2, 3, 2
"""Free disk space for a run, and the first time for images in containerd, for the images and their
layers in buildah, and for programs. Measured, and rounded up. Go's modules and its cache, which
may be there or elsewhere, take another 9 GiB from nothing."""
SYSTEM = {
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "ipset": "ipset",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
"""Required programs, and the Debian package of each."""
_GROUPS = Path("/sys/fs/cgroup")
_TIMEOUT_S = 60.0
_PRIVILEGES = (
    "run it on a virtual machine, or in a container with all privileges"
    " (docker run --privileged --cgroupns=host)"
)
_TRIES: Mapping[str, tuple[str, str]] = {
    "mounts": ("mount --make-rshared / && mount -t tmpfs tmpfs /run", _PRIVILEGES),
    "overlay": (
        "mount -t overlay overlay -o lowerdir=$1/low,upperdir=$1/up,workdir=$1/work $1/all",
        f"the folder {CACHE} must lie on a disk and not on an overlay: mount a volume there",
    ),
    "links": (
        "ip link add p0 type veth peer p1 && ip link add p2 type bridge"
        " && ip link set p0 master p2",
        _PRIVILEGES,
    ),
    "forwarding": ("sysctl -qw net.ipv4.ip_forward=1", _PRIVILEGES),
    "packets that cross a bridge": (
        "sysctl -qw net.bridge.bridge-nf-call-iptables=1",
        "load the kernel's module: modprobe br_netfilter",
    ),
    "packet rules": (
        "nft add table ip t && nft add chain ip t c"
        " '{ type nat hook postrouting priority 100; }' && nft add rule ip t c masquerade"
        " && iptables -t nat -L -n",
        "load the kernel's modules: modprobe nf_tables nft_masq nft_chain_nat",
    ),
    "network policies": (
        "ipset create t hash:ip && iptables -A FORWARD -m set --match-set t src -j REJECT",
        "load the kernel's modules: modprobe ip_set_hash_ip xt_set nft_compat ipt_REJECT",
    ),
}
"""Operations that the cluster needs, as scripts with a folder as argument, each with its remedy."""


def check_machine() -> None:
    """Checks programs, privileges, kernel and disk.

    Raises:
        ToolsError: something is missing; has the system's message and the remedy.
    """
    _check_system()
    _check_disk()
    _check_groups()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.resolve()) as folder:
        for name in ("low", "up", "work", "all"):
            Path(folder, name).mkdir()
        inside = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        _try("namespaces", [*inside, "mount", "-t", "proc", "proc", "/proc"], _PRIVILEGES)
        for need, (script, remedy) in _TRIES.items():
            path = 'PATH="$PATH:/usr/sbin:/sbin"; '
            _try(need, [*inside, "sh", "-ec", path + script, "sh", folder], remedy)


def _check_system() -> None:
    if os.geteuid() != 0:
        raise ToolsError("a cluster needs root (namespaces, mounts, containers): run make as root")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted({p for name, p in SYSTEM.items() if shutil.which(name, path=path) is None})
    if missing:
        raise ToolsError(
            f"missing: {', '.join(missing)}; Debian and Ubuntu: apt-get install"
            f" --no-install-recommends {' '.join(missing)}"
        )


def _try(need: str, words: Sequence[str], remedy: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        reason = "" if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"
    except subprocess.TimeoutExpired:
        reason = f"no answer in {_TIMEOUT_S:.0f} s"
    if reason:
        raise ToolsError(f"this machine cannot run a cluster: {need}: {reason}\n{remedy}")


def _check_groups() -> None:
    """Checks that control groups can be created below every controller's root."""
    together = _GROUPS / "cgroup.controllers"
    if together.is_file():
        have = set(together.read_text().split())
        roots = [_GROUPS]
    else:
        have = {name for name in CONTROLLERS if (_GROUPS / name / "tasks").exists()}
        roots = [_GROUPS / name for name in sorted(have)]
    missing = [name for name in CONTROLLERS if name not in have]
    if missing:
        raise ToolsError(
            f"control groups lack {', '.join(missing)} below {_GROUPS}: mount them, or"
            f" {_PRIVILEGES}"
        )
    for root in roots:
        group = root / "flowmesh-e2e-probe"
        try:
            group.mkdir(exist_ok=True)
            group.rmdir()
        except OSError as e:
            raise ToolsError(
                f"no control group can be made in {root}: {e.strerror}; {_PRIVILEGES}"
            ) from e


def _check_disk() -> None:
    parts = (
        (PROGRAMS_GIB, BINS / ".kubernetes"),
        (IMAGES_GIB, IMAGES),
        (STOCK_GIB, STOCK / "books"),
    )
    need = RUN_GIB + sum(gib for gib, made in parts if not made.exists())
    place = next(p for p in (CACHE, *CACHE.parents) if p.exists())
    free = shutil.disk_usage(place).free >> 30
    if free < need:
        raise ToolsError(
            f"{place} has {free} GiB free; a cluster needs {need}"
            f"{'' if need == RUN_GIB else ' the first time'}: make room, or link {CACHE} to"
            " another disk"
        )

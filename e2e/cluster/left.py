"""What of a cluster is still there after its end: nothing should be."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.namespaces import HOST_LINK, PRIVATE
from e2e.cluster.places import CACHE, STATE

_PEOPLES = {"kubectl", "helm"}
_TABLES = ("kube-proxy", "cni_hostport")


def left(since_s: float) -> list[str]:
    """Names processes, mounts, links, packet rules, control groups and files that stay.

    Args:
        since_s: when the cluster began; a file of a container runtime that is older is not its.
    """
    return [*_processes(), *_mounts(), *_network(), *_control_groups(), *_files(since_s)]


def _processes() -> Iterator[str]:
    """The cluster's programs name its folder in their arguments, pods' shims too."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        program = Path(words[0]).name
        if program not in _PEOPLES and any(f"{STATE}/" in word for word in words):
            yield f"process {process.name} ({program})"


def _mounts() -> Iterator[str]:
    ours = (f"{CACHE}/", f"{CACHE.resolve()}/")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(ours) or "/kubepods" in place:
            yield f"mount {place}"


def _network() -> Iterator[str]:
    if Path("/sys/class/net", HOST_LINK).exists():
        yield f"link {HOST_LINK}"
    said = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    yield from (f"packet rules: {line}" for line in said.stdout.splitlines()
                if any(name in line for name in _TABLES))  # fmt: skip


def _control_groups() -> Iterator[str]:
    yield from (f"control group {top}" for top in Path("/sys/fs/cgroup").glob("**/kubepods"))


def _files(since_s: float) -> Iterator[str]:
    if STATE.exists():
        yield f"folder {STATE}"
    # A machine's own container runtime may use these places too: only ours have these names.
    run = PRIVATE[0]
    yield from (f"file {file}" for file in run.glob("netns/cni-*")
                if file.stat().st_mtime >= since_s)  # fmt: skip

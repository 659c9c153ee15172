"""Finds what remains of a cluster after its end; nothing should."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.namespaces import HOST_LINK, PRIVATE
from e2e.cluster.paths import CACHE, STATE

_USERS_PROGRAMS = {"kubectl", "helm"}
_TABLES = ("kube-proxy", "cni_hostport")


def find_leaks(since_s: float) -> list[str]:
    """Returns processes, mounts, links, packet rules, control groups and files that remain.

    Args:
        since_s: when the cluster started; older files belong to another container runtime.
    """
    return [*_processes(), *_mounts(), *_network(), *_control_groups(), *_files(since_s)]


def _processes() -> Iterator[str]:
    """Yields processes whose arguments name the cluster's folder, with pods' shims."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        program = Path(words[0]).name
        if program not in _USERS_PROGRAMS and any(f"{STATE}/" in word for word in words):
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
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    yield from (f"packet rules: {line}" for line in listed.stdout.splitlines()
                if any(name in line for name in _TABLES))  # fmt: skip


def _control_groups() -> Iterator[str]:
    yield from (f"control group {top}" for top in Path("/sys/fs/cgroup").glob("**/kubepods"))


def _files(since_s: float) -> Iterator[str]:
    if STATE.exists():
        yield f"folder {STATE}"
    # Another container runtime of the machine may use this folder too, with other names.
    run = PRIVATE[0]
    yield from (f"file {file}" for file in run.glob("netns/cni-*")
                if file.stat().st_mtime >= since_s)  # fmt: skip
